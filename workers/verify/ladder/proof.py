"""What the evidence of a package says in short: what it was judged on, and how well it agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrix.datasets import SYNTHETIC

Json = Mapping[str, Any]
OLD = "synthetic samples, before samples were recorded"


@dataclass(frozen=True, slots=True)
class Proof:
    """The samples, and the worst figures of all outputs on all runtimes."""

    kind: str
    """`dataset`, `processor` or `synthetic`."""
    judged: int = 0
    """Samples of the verdict."""
    origin: str = ""
    trained: bool = True
    needs_real: bool = False
    """Synthetic samples prove nothing of it."""
    accepted: str = ""
    """Why the catalog accepts synthetic samples all the same."""
    snr: float | None = None
    """Decibels between what varies and the error."""
    agreement: float | None = None
    """The share of the decisions that are those of the export."""
    old: bool = False
    """Verified before samples were recorded: those were synthetic."""

    @property
    def unproven(self) -> bool:
        """Whether its samples say nothing of how it answers its users."""
        return self.old or (self.kind == SYNTHETIC and self.needs_real)

    @property
    def samples(self) -> str:
        """The samples for people, without numbers."""
        if self.old:
            return OLD
        why = self.accepted and f"accepted: {self.accepted}"
        if self.kind == SYNTHETIC and not self.trained:
            why = "random weights"
        return f"{self.kind} samples" + (f" ({why})" if why else "")

    def __str__(self) -> str:
        if self.old:
            return OLD
        told = [f"{self.judged} {self.samples}"]
        if self.snr is not None:
            told.append(f"{self.snr:g} dB")
        if self.agreement is not None:
            told.append(f"{self.agreement:.1%} agree")
        return ", ".join(told)


def proof_of(rungs: Sequence[Json]) -> Proof | None:
    """What these rungs say; None: the package was never compared."""
    named = {one.get("name"): _table(one.get("evidence")) for one in rungs}
    parity = named.get("parity")
    if "samples" not in named:
        judged = any(one.get("name") == "parity" and one.get("passed") is not None for one in rungs)
        return Proof(SYNTHETIC, old=True) if judged else None
    told = named["samples"]
    made = [one for one in _list(told.get("samples")) if isinstance(one, Mapping)]
    kinds = {str(one.get("kind", "")) for one in made} - {""}
    if not kinds:
        return None
    rows = [*_rows(parity or {})]
    judged_on = told.get("judged")
    return Proof(
        kind=SYNTHETIC if SYNTHETIC in kinds else min(kinds),
        judged=judged_on if isinstance(judged_on, int) else 0,
        origin=", ".join(dict.fromkeys(str(one.get("origin", "")) for one in made)),
        trained=told.get("trained") is not False,
        needs_real=told.get("needs_real") is True,
        accepted=str(told.get("reason", "")),
        snr=min(_numbers(rows, "snr"), default=None),
        agreement=min(_numbers(rows, "agreement"), default=None),
    )


def _rows(parity: Json) -> Iterator[Json]:
    """The figures of every output on every runtime."""
    for name, found in parity.items():
        if name not in {"limits", "samples", "generation"}:
            yield from (one for one in _table(found).values() if isinstance(one, Mapping))


def _numbers(rows: Sequence[Json], name: str) -> Iterator[float]:
    for one in rows:
        if isinstance(one.get(name), int | float):
            yield float(one[name])


def _table(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
