"""What a package claims to be, according to its cell or to its own manifest and target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matrix.codec import from_json
from matrix.model import Cell, Profile, Target
from matrix.nearest import quote
from matrix.policy import PRECISIONS, quantized
from matrix.verification import Limit, Rules, rules_from, rules_of

IR_OF_OPSET = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
"""The IR version released with an opset: a runtime that supports one reads the other."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A cell as the ladder sees it."""

    cell: str
    target: Target
    precision: str
    static_shapes: bool = False
    blocked_ops: tuple[str, ...] = ()
    blocked_passes: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    profile: Profile | None = None
    """What a compiled cell was compiled for."""
    task: str = ""
    trained: bool = False
    """Its weights were learnt: real inputs exist for it."""
    synthetic: str = ""
    """The reason for which the catalog accepts synthetic samples."""

    @classmethod
    def of(cls, cell: Cell) -> Claim:
        """The claim of a planned cell."""
        policy = cell.policy
        return cls(
            cell.id,
            cell.target,
            policy.precision,
            policy.static_shapes,
            policy.blocked_ops,
            policy.blocked_passes,
            rules_of(cell),
            cell.profile,
            cell.model.task,
            cell.model.trained,
            cell.model.samples.get("reason", ""),
        )

    @classmethod
    def from_records(
        cls, manifest: Mapping[str, Any], record: Mapping[str, Any], target: Target
    ) -> Claim:
        """The claim of an existing package, of records that were checked. Raises `ValueError`."""
        policy = manifest["policy"]
        if policy["precision"] not in PRECISIONS:
            raise ValueError(f"unknown precision {quote(policy['precision'])}")
        rules = dict(record.get("rules", {}))
        rules.pop("inputs", None)  # of packages that had no samples of their own
        rules["parity"] = {
            name: one for name, one in rules.get("parity", {}).items() if "cosine" not in one
        }
        dataset = rules.get("task", {}).get("dataset")
        if dataset is not None and not Path(dataset).is_file():
            del rules["task"]  # it exists only on the machine that built the package
        samples = manifest.get("samples", {})
        return cls(
            str(manifest["cell"]),
            target,
            policy["precision"],
            bool(policy["static_shapes"]),
            tuple(policy["blocked_ops"]),
            tuple(policy["blocked_passes"]),
            rules_from(rules),
            from_json(manifest["profile"], Profile) if manifest.get("profile") else None,
            str(manifest.get("model", {}).get("task", "")),
            bool(samples.get("trained")),
            samples.get("accepted", {}).get("reason", ""),
        )

    @property
    def limit(self) -> Limit:
        """What parity requires of every output."""
        return self.rules.limit(self.precision)

    @property
    def needs_real(self) -> bool:
        """Whether synthetic samples prove nothing: the quantized graph of a trained model."""
        return self.trained and quantized(self.precision)

    @property
    def newest_ir(self) -> int:
        """The newest IR version that the target reads."""
        newest = self.target.opset[1]
        return IR_OF_OPSET.get(newest, 7 if newest < 13 else max(IR_OF_OPSET.values()))
