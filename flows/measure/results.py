"""What becomes of a result: the rows that the state keeps, and lines for people, which show every
time of an emulator as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from flows.observe.evidence import EMULATED
from flows.observe.latency import interval_of, protocol_of
from flows.output.quantity import show_ms, show_size
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from matrix.codec import to_json
from state.errors import StateError
from state.records import Measurement, MeasurementKind
from workers.measure.comparison import Comparison, GraphComparison
from workers.measure.result import Benchmark, GraphResult, Latency, Session
from workers.measure.trace.result import Trace
from workers.measure.verdict import Verdict

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


def benchmark_lines(result: Benchmark) -> Iterator[str]:
    """One subject."""
    yield f"{result.artifact.name} on {result.runtime.name}, {result.runtime.version}"
    yield f"  {protocol_of(asdict(result.protocol))}"
    if result.emulated:
        yield f"  {EMULATED}"
    for graph in result.graphs:
        yield from _graph(graph, emulated=result.emulated)
    for text in result.warnings:
        yield f"  warning: {text}"


def _graph(graph: GraphResult, *, emulated: bool) -> Iterator[str]:
    if graph.component:
        yield f"  {graph.component}"
    if graph.fault is not None:
        yield f"    FAILED at {graph.fault.at}: {graph.fault.message} ({graph.fault.failure})"
        return
    for title, text in _rows(graph, emulated=emulated):
        yield f"    {title:<11}{text}"


def _rows(graph: GraphResult, *, emulated: bool) -> Iterator[tuple[str, str]]:
    if graph.latency is not None:
        yield from _latency(graph.latency, emulated=emulated)
    yield "opening", _opening(graph.sessions)
    opened, run = (median([getattr(one, name) for one in graph.sessions]) for name in _MEMORY)
    told = f"{show_size(opened)} to open, {show_size(run)} more to run"
    yield "memory", told if opened else "this system does not report it"
    yield "nodes", _nodes(graph.nodes)
    for number, (name, kind) in enumerate(graph.inputs.items()):
        yield "" if number else "inputs", f"{name}: {kind}"


_MEMORY = ("open_memory", "run_memory")


def _latency(found: Latency, *, emulated: bool) -> Iterator[tuple[str, str]]:
    times = (f"{name} {show_ms(getattr(found, name))}" for name in ("p50", "p90", "p95", "p99"))
    yield "emulated" if emulated else "latency", "  ".join(times)
    yield "", f"mean {show_ms(found.mean)}  std {show_ms(found.std)}  CV {found.cv:.1%}"
    yield "", f"min {show_ms(found.min)}  max {show_ms(found.max)}"
    rate = f"{found.throughput:,.0f}" if found.throughput >= 100 else f"{found.throughput:.3g}"
    yield "throughput", f"{rate} runs/s" + (" (emulated)" if emulated else "")


def _opening(sessions: tuple[Session, ...]) -> str:
    warm = f"warm {show_ms(1000 * median([one.open_warm for one in sessions]))}"
    cold = [one.open_cold for one in sessions if one.open_cold is not None]
    return f"cold {show_ms(1000 * median(cold))}, {warm}" if cold else warm


def _nodes(nodes: Mapping[str, int]) -> str:
    if not nodes:
        return "the runtime does not report them"
    every = sum(nodes.values())
    shares = ((name, f"{count} of {every}", _share(count, every)) for name, count in nodes.items())
    return ", ".join(f"{name} {part} ({share})" for name, part, share in shares)


def _share(count: int, every: int) -> str:
    """Never 100% of what is not all of it, nor 0% of what is some."""
    near = count != every and not 0.01 <= count / every <= 0.99
    return f"{count / every:.1%}" if near else f"{count / every:.0%}"


def comparison_lines(found: Comparison) -> Iterator[str]:
    """Both sides, then the verdict on each graph."""
    for side in (found.this, found.other):
        yield from benchmark_lines(side)
        yield ""
    emulated = found.this.emulated or found.other.emulated
    for graph in found.graphs:
        yield from _verdict_lines(found, graph, emulated=emulated)


def _verdict_lines(found: Comparison, graph: GraphComparison, *, emulated: bool) -> Iterator[str]:
    about = f"{graph.component}: " if graph.component else ""
    judged = graph.judgement
    if judged is None:
        yield f"{about}no verdict, because one side could not be measured"
        return
    mark = " (emulated)" if emulated else ""
    doubt = "" if judged.verdict in {Verdict.FASTER, Verdict.SLOWER} else ", which may be chance"
    yield f"{about}{judged.verdict.value}{mark}: {judged.ratio - 1:+.1%} time{doubt}"
    yield f"  {judged.why}"
    yield f"  {found.this.artifact.name} against {found.other.artifact.name},"
    yield f"  {interval_of(judged.low, judged.high, judged.floor)}"
