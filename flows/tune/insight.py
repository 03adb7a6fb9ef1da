"""Facts about a model before any trial: from its graph, a session and a trace.

A fact is either present with its source or absent. Without onnx, or with a model that cannot be
read, `available` is false and `reason` says why: an unknown share of convolutions is not 0 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workers.build.built import Built
from workers.errors import BuildFailed
from workers.host.client import Host
from workers.measure.result import Benchmark
from workers.measure.trace.result import Trace

STAGE = "insight"
SHARES = ("Conv", "MatMul", "Gemm")
"""Operators in which most of the arithmetic is."""
TOP = 8
EVIDENCE = 3
GRAPH = ".onnx"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Places that a pass could rewrite (`matrix.vocabulary`)."""

    name: str
    count: int
    evidence: tuple[str, ...]
    """The names of the first nodes."""


@dataclass(frozen=True, slots=True)
class TopOperator:
    """Operators of one type in the trace of the baseline."""

    type: str
    count: int
    percent: float
    """Of an inference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """The facts of a model on a target."""

    available: bool = False
    reason: str = ""
    """Why the graph is not known."""
    opset: int = 0
    nodes: int = 0
    """Without constants, all graphs of the model together."""
    operators: Mapping[str, int] = field(default_factory=dict)
    """Most frequent first; other domains as prefix."""
    dynamic: tuple[str, ...] = ()
    """Open dimensions of inputs: `input_ids[1] sequence_length`."""
    candidates: tuple[Candidate, ...] = ()
    """Most places first."""
    assigned: Mapping[str, int] = field(default_factory=dict)
    """How many nodes each provider took in a session of the baseline; empty: not reported."""
    taken: float | None = None
    """The share of them that the target's own provider took."""
    top: tuple[TopOperator, ...] = ()
    """From the trace of the baseline, the slowest first; empty: there is none."""
    untraced: str = ""
    """Why there is no trace."""

    def share(self, operator: str) -> float | None:
        """The share of an operator among all nodes; None: the graph is not known."""
        if not self.available or not self.nodes:
            return None
        return self.operators.get(operator, 0) / self.nodes

    def count(self, operator: str) -> int | None:
        """How many there are; None: the graph is not known."""
        return self.operators.get(operator, 0) if self.available else None

    def candidate(self, name: str) -> Candidate | None:
        """By name."""
        return next((one for one in self.candidates if one.name == name), None)

    def lines(self) -> list[str]:
        """For a terminal or a report."""
        if not self.available:
            return [f"the graph is not known: {self.reason}", *self._session_lines()]
        shares = [f"{name} {self.share(name) or 0:.0%}" for name in SHARES if self.count(name)]
        found = [f"opset {self.opset}, {self.nodes} nodes; {', '.join(shares) or 'no products'}"]
        found += [f"open dimensions: {', '.join(self.dynamic)}"] if self.dynamic else []
        found += [f"{one.name}: {one.count}, e.g. {one.evidence[0]}" for one in self.candidates]
        return [*found, *self._session_lines()]

    def _session_lines(self) -> list[str]:
        found = []
        if self.assigned:
            counts = ", ".join(f"{name} {count}" for name, count in self.assigned.items())
            found.append(f"nodes in a session: {counts}")
        if self.top:
            told = ", ".join(f"{one.type} {one.percent:.0f} %" for one in self.top)
            found.append(f"time of the baseline: {told}")
        elif self.untraced:
            found.append(f"the baseline was not traced: {self.untraced}")
        return found


def graphs_of(built: Built, folder: Path) -> dict[str, Path]:
    """The exported graph of each component of a package, placed in a folder; without an export,
    the package's own."""
    entries = [entry for entry in built.export if entry.path.endswith(GRAPH)]
    if not entries:
        own = [file for file in built.files if file.entry.path.endswith(GRAPH)]
        return {_component(file.entry.path): file.source for file in own}
    built.store.materialize(entries, folder)
    return {_component(entry.path): folder / entry.path for entry in entries}


def _component(path: str) -> str:
    """Its folder, or its name beside graphs that share its weights."""
    folder, _, name = path.rpartition("/")
    return folder or name.removesuffix(GRAPH).removesuffix("model")


def graph_insight(checker: Host, models: Mapping[str, Path]) -> Insight:
    """The facts of a model's graphs; `models`: the file of each component.

    They should be those of the export: passes have not run yet, and nothing is quantized.
    """
    if not models:
        return Insight(reason="the model has no graph")
    found: list[tuple[str, Mapping[str, Any]]] = []
    for component, path in models.items():
        try:
            reply = checker.call("facts", {"file": str(path.absolute())}, stage=STAGE)
        except BuildFailed as error:
            about = f"{component}: " if component else ""
            return Insight(reason=f"{about}{error.reason}")
        found.append((component, reply.result))
    return joined(found)


def joined(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> Insight:
    """The facts of all components together, as `workers.measure.insight` reports each."""
    operators: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    evidence: dict[str, list[str]] = {}
    dynamic: list[str] = []
    for component, facts in parts:
        prefix = f"{component}: " if component else ""
        operators.update(facts["operators"])
        dynamic += [prefix + text for text in facts["dynamic"]]
        for one in facts["candidates"]:
            counts[one["name"]] += one["count"]
            evidence.setdefault(one["name"], []).extend(prefix + name for name in one["evidence"])
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Insight(
        available=True,
        opset=max(facts["opset"] for _, facts in parts),
        nodes=sum(facts["nodes"] for _, facts in parts),
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        dynamic=tuple(dynamic),
        candidates=tuple(
            Candidate(name, count, tuple(evidence[name][:EVIDENCE])) for name, count in ordered
        ),
    )


def with_session(insight: Insight, benchmark: Benchmark) -> Insight:
    """With what the target's provider took of the baseline in a real session, and what it left."""
    taken: Counter[str] = Counter()
    for graph in benchmark.graphs:
        taken.update(graph.nodes)
    total, own = taken.total(), benchmark.runtime.provider
    mine = sum(count for name, count in taken.items() if _same(name, own))
    return replace(
        insight, assigned=dict(taken.most_common()), taken=mine / total if total else None
    )


def _same(name: str, provider: str) -> bool:
    """OpenVINO's own runtime reports its device as `OpenVINO CPU`."""
    word = provider.removesuffix("ExecutionProvider").casefold()
    return name == provider or name.casefold().split(" ")[0] == word


def with_trace(insight: Insight, trace: Trace) -> Insight:
    """With the slowest operators of the baseline, or the reason why they are not known."""
    if not trace.usable:
        return replace(insight, untraced=trace.error or f"the trace has {trace.status.value}")
    rows = trace.statistics.types[:TOP]
    top = tuple(TopOperator(one.type, one.count, one.percent_of_total) for one in rows)
    return replace(insight, top=top)
