"""What the optimize stages of one model have already worked out, kept while that model is built.

Keyed by the bytes of the graph, the flags and the rule data, which is all that winml-cli's
optimizer and analyzer depend on. Files are kept in the host's own temporary folder and dropped
as soon as another export arrives; a cell never gets a link to them, only a copy.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.winml_engine import warm

GRAPH = "iter.onnx"
NO_RULES = ("CPUExecutionProvider", "cpu")
"""A target of which winml-cli has no rule data; the analysis of all of those is the same."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What the analyzer says of a graph."""

    flags: Mapping[str, Any]
    unsupported: tuple[str, ...]
    partial: tuple[str, ...]
    findings: int

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "unsupported": list(self.unsupported),
            "partial": list(self.partial),
            "findings": self.findings,
            "suggested": dict(self.flags),
        }


@dataclass(slots=True)
class Recall:
    """The memory of one model's optimization."""

    home: Path
    """Where to keep files: the temporary folder of the process, not of a stage."""
    _start: str = ""
    _root: Path | None = None
    _graphs: dict[tuple[str, str], Path] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)
    _looks: dict[tuple[str, str | None], Looked] = field(default_factory=dict)
    _hits: int = 0

    def begin(self, export: Path) -> None:
        """Forget everything if this is another export than the last."""
        self._hits = 0
        digest = _digest(export)
        if digest == self._start and self._root is not None and self._root.is_dir():
            return
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
        self._graphs.clear()
        self._digests.clear()
        self._looks.clear()
        warm.forget_model()
        self._start = digest
        self._root = Path(tempfile.mkdtemp(prefix="winml-", dir=self.home))

    def hits(self) -> int:
        """How much was remembered since `begin`."""
        return self._hits

    def first(self, export: Path, flags: Mapping[str, Any] | None) -> Path:
        """The export optimized with the model's own flags (None: as it is)."""
        return self._made(self._start, export, flags)

    def apply(self, graph: Path, flags: Mapping[str, Any]) -> Path:
        """A remembered graph optimized with the flags that the analyzer found, and only those."""
        return self._made(self._digests[graph], graph, flags)

    def look(self, graph: Path, rules: str | None) -> Looked:
        """The analyzer's view of a remembered graph."""
        key = (self._digests[graph], rules)
        if key in self._looks:
            self._hits += 1
        else:
            self._looks[key] = _look(graph, rules)
        return self._looks[key]

    def _made(self, digest: str, graph: Path, flags: Mapping[str, Any] | None) -> Path:
        key = (digest, json.dumps(None if flags is None else dict(flags), sort_keys=True))
        if key in self._graphs:
            self._hits += 1
            return self._graphs[key]
        if self._root is None:
            raise AssertionError("begin comes first")
        folder = Path(tempfile.mkdtemp(dir=self._root))
        target = folder / GRAPH
        if flags is None:
            from winml.modelkit.onnx import copy_onnx_model

            copy_onnx_model(graph, target)
        else:
            from winml.modelkit.optim import optimize_onnx

            optimize_onnx(model=graph, output=target, use_external_data=True, **flags)
        self._digests[target] = _digest(target)
        self._graphs[key] = target
        return target


def _look(graph: Path, rules: str | None) -> Looked:
    from winml.modelkit.analyze import analyze_onnx

    provider, _, device = rules.rpartition("_") if rules else (NO_RULES[0], "", NO_RULES[1])
    found = analyze_onnx(
        graph,
        ep=provider,
        device=device.lower(),
        run_unknown_op=False,
        on_node_result=lambda _result: None,  # or it draws a bar of its own
    )
    flags = found.optimization_config.to_dict() if found.optimization_config else {}
    return Looked(
        flags=flags,
        unsupported=tuple(found.lint.error_patterns),
        partial=tuple(found.lint.warning_patterns),
        findings=int(found.lint.info),
    )


def _digest(model: Path) -> str:
    """Of a graph and the weights beside it."""
    digest = hashlib.sha256()
    for file in (model, model.with_name(f"{model.name}.data")):
        if file.exists():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
