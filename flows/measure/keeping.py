"""From the result of a measurement to what the state keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from matrix.codec import to_json
from state.errors import StateError
from state.records import Measurement, MeasurementKind
from workers.measure.comparison import Comparison, GraphComparison
from workers.measure.result import Benchmark, GraphResult
from workers.measure.trace.result import Trace

_DIGEST = 64
"""Characters of a tree digest."""


def rows_of(
    found: Benchmark, *, stamp: str = "", cell: str = "", tree: str | None = None
) -> list[Measurement]:
    """A row for each graph that was measured.

    `tree`: the digest of the package, where it is known better than by the files that were read.
    """
    return [
        replace(
            _row(MeasurementKind.BENCHMARK, found, graph),
            tree=tree or found.artifact.tree,
            cell=cell or found.artifact.cell,
            stamp=stamp,
            detail=_detail(found, graph),
            raw={"sessions": to_json(graph.sessions)},
        )
        for graph in found.graphs
        if graph.latency is not None
    ]


def _row(kind: MeasurementKind, found: Benchmark, graph: GraphResult) -> Measurement:
    """The columns that every row of a measured graph has."""
    assert graph.latency is not None
    runtime = found.runtime
    return Measurement(
        kind=kind,
        tree=found.artifact.tree,
        cell=found.artifact.cell,
        stamp="",
        component=graph.component,
        runtime=runtime.kind,
        provider=runtime.provider,
        device=runtime.device,
        version=runtime.version,
        emulated=runtime.emulated,
        machine=found.machine.name,
        protocol=asdict(found.protocol),
        percentiles=asdict(graph.latency),
    )


def compared_rows(found: Comparison) -> list[Measurement]:
    """A row for each graph with a verdict; it belongs to the subject and names the other one."""
    sides = zip(found.this.graphs, found.other.graphs, found.graphs, strict=True)
    return [
        replace(
            _row(MeasurementKind.COMPARISON, found.this, this),
            detail=_verdict(found, other, compared),
            raw={
                side: {"sessions": to_json(graph.sessions)}
                for side, graph in (("this", this), ("other", other), ("null", compared.null))
            },
        )
        for this, other, compared in sides
        if this.latency and other.latency and compared.judgement
    ]


def _verdict(found: Comparison, other: GraphResult, compared: GraphComparison) -> dict[str, Any]:
    assert other.latency is not None
    assert compared.judgement is not None
    against = found.other
    return {
        **to_json(compared.judgement),
        "other": {
            **to_json(against.artifact),
            "on": against.runtime.name,
            "version": against.runtime.version,
            "emulated": against.emulated,
            "percentiles": asdict(other.latency),
        },
        "seed": found.seed,
        "order": list(compared.order),
        "machine": asdict(found.this.machine),
        "warnings": list(found.this.warnings),
        "took": found.this.seconds,
    }


def keep(
    settings: Settings, rows: Sequence[Measurement], what: str, tell: Callable[[str], None]
) -> None:
    """Keep what was measured outside of any sweep; without a state it is only shown."""
    if not rows:
        return
    try:
        with Workspace(settings).open_state() as state:
            for row in rows:
                state.keep(row)
    except StateError as error:
        tell(f"{what} was not saved: {error}")


def trace_rows(trace: Trace) -> list[Measurement]:
    """The row of a trace that shows operators, so that reports can link to it."""
    about = trace.metadata
    if not trace.usable or len(about.tree or "") != _DIGEST:
        return []
    known = trace.statistics
    inference = known.unprofiled or known.inference or known.wall
    times = asdict(inference) if inference else {}
    names = {name: name.removesuffix("_us") for name in times if name.endswith("_us")}
    row = Measurement(
        kind=MeasurementKind.TRACE,
        tree=about.tree or "",
        cell=about.model if "@" in about.model else "",
        stamp="",
        component=about.component or "",
        runtime=about.tracing_backend,
        provider=about.ep,
        device=about.device,
        version=about.runtime or "",
        emulated=about.emulated,
        machine=about.machine or "",
        protocol={
            "level": about.tracing_level,
            "warmup": about.warmup or 0,
            "iterations": about.num_samples,
            "threads": about.threads or 0,
        },
        percentiles={short: times[name] / 1000 for name, short in names.items()},
        detail={"status": trace.status.value, "operators": len(trace.operators)},
        raw=trace.to_json(),
    )
    return [row]


def _detail(found: Benchmark, graph: GraphResult) -> dict[str, Any]:
    """What a report shows beside the percentiles."""
    assert graph.latency is not None
    cold = [one.open_cold for one in graph.sessions if one.open_cold is not None]
    warm = [one.open_warm for one in graph.sessions]
    told = {
        "sessions": [float(one.p50) for one in graph.sessions],
        "throughput": round(graph.latency.throughput, 3),
        "cv": round(graph.latency.cv, 4),
        "open_cold": min(cold, default=None),
        "open_warm": min(warm, default=None),
        "open_memory": max((one.open_memory for one in graph.sessions), default=0),
        "run_memory": max((one.run_memory for one in graph.sessions), default=0),
        "inputs": dict(graph.inputs),
        "nodes": dict(graph.nodes),
        "machine": asdict(found.machine),
        "warnings": list(found.warnings),
        "took": found.seconds,
    }
    return {name: value for name, value in told.items() if value not in (None, {}, [])}
