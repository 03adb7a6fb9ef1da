"""What optimize stages have already worked out, kept while their models are being built.

Keyed by the bytes of the graph, the flags and the rule data, which is all that winml-cli's
optimizer and analyzer depend on. Files are kept in the temporary folder of the host process,
those of the last few exports only (a composite has several); a cell gets copies of them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.winml_engine import warm

GRAPH = "iter.onnx"
KEPT = 4
"""Exports whose graphs are kept: about the components of the model at hand."""
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
class Memory:
    """Of one export: graphs made from it, and what the analyzer said of them."""

    root: Path
    start: str
    hits: int = 0
    _graphs: dict[tuple[str, str], Path] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)
    _looks: dict[tuple[str, str | None], Looked] = field(default_factory=dict)

    def first(self, export: Path, flags: Mapping[str, Any] | None) -> Path:
        """The export optimized with the model's own flags (None: as it is)."""
        return self._made(self.start, export, flags)

    def apply(self, graph: Path, flags: Mapping[str, Any]) -> Path:
        """A graph from here optimized with the flags that the analyzer found, and only those."""
        return self._made(self._digests[graph], graph, flags)

    def look(self, graph: Path, rules: str | None) -> Looked:
        """The analyzer's view of a graph from here."""
        key = (self._digests[graph], rules)
        if key in self._looks:
            self.hits += 1
        else:
            self._looks[key] = analyze(graph, rules)
        return self._looks[key]

    def _made(self, digest: str, graph: Path, flags: Mapping[str, Any] | None) -> Path:
        key = (digest, json.dumps(None if flags is None else dict(flags), sort_keys=True))
        if key in self._graphs:
            self.hits += 1
            return self._graphs[key]
        target = Path(tempfile.mkdtemp(dir=self.root)) / GRAPH
        transform(graph, target, flags)
        self._digests[target] = model_digest(target)
        self._graphs[key] = target
        return target


@dataclass(slots=True)
class Recall:
    """The memories of the last few exports."""

    home: Path
    _memories: OrderedDict[str, Memory] = field(default_factory=OrderedDict)

    def of(self, export: Path) -> Memory:
        """The memory of an export; an empty one if it has not been seen lately."""
        digest = model_digest(export)
        memory = self._memories.pop(digest, None)
        if memory is None or not memory.root.is_dir():
            self._forget()
            memory = Memory(Path(tempfile.mkdtemp(prefix="winml-", dir=self.home)), digest)
        self._memories[digest] = memory
        memory.hits = 0
        return memory

    def _forget(self) -> None:
        warm.forget_models()
        while len(self._memories) >= KEPT:
            _digest, memory = self._memories.popitem(last=False)
            shutil.rmtree(memory.root, ignore_errors=True)


def transform(graph: Path, target: Path, flags: Mapping[str, Any] | None) -> None:
    """One run of winml-cli's optimizer; without flags at all, a copy."""
    if flags is None:
        from winml.modelkit.onnx import copy_onnx_model

        copy_onnx_model(graph, target)
    else:
        from winml.modelkit.optim import optimize_onnx

        optimize_onnx(model=graph, output=target, use_external_data=True, **flags)


def analyze(graph: Path, rules: str | None) -> Looked:
    """One run of winml-cli's static analyzer."""
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


def model_digest(model: Path) -> str:
    """Of a graph and the weights beside it."""
    digest = hashlib.sha256()
    for file in (model, model.with_name(f"{model.name}.data")):
        if file.exists():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
