"""Benchmarks and comparisons as text; every time of an emulator is shown as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from statistics import median

from flows.observe.evidence import EMULATED
from flows.observe.latency import interval_of, protocol_of
from flows.output.quantity import show_ms, show_size
from workers.measure.comparison import Comparison, GraphComparison
from workers.measure.result import Benchmark, GraphResult, Latency, Session
from workers.measure.verdict import Verdict


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
        yield from _verdict(found, graph, emulated=emulated)


def _verdict(found: Comparison, graph: GraphComparison, *, emulated: bool) -> Iterator[str]:
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
