"""One trace on a terminal: its largest operators, and what all of them add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from flows.observe.evidence import EMULATED
from flows.output.quantity import counted, show_size, show_us
from workers.measure.trace.result import Operator, Trace, TraceStatus, TypeTotal

_NARROWEST = 30
"""Characters of a name; columns are left out before names get shorter."""
_WIDEST_TYPE = 18
_TYPES = 5


@dataclass(frozen=True, slots=True)
class Column:
    """A column beside the names of operators."""

    head: str
    cell: Callable[[Operator, float], str]
    """Of an operator and the share of the time up to it."""
    goes: int = 0
    """The order in which columns are left out where there is no room; 0: it stays."""


def _share(one: Operator | TypeTotal) -> float:
    """Of a run without the profiler, where that is known."""
    told = one.estimated_percent
    return one.percent_of_total if told is None else told


def _or_none(value: float | None, show: Callable[[float], str]) -> str:
    return "-" if value is None else show(value)


_TYPE = Column("Type", lambda one, _cumulative: _type(one))
_AVERAGE = Column("Avg", lambda one, _cumulative: show_us(one.avg_us))
_P50 = Column("p50", lambda one, _cumulative: _or_none(one.p50_us, show_us))
_P90 = Column("p90", lambda one, _cumulative: _or_none(one.p90_us, show_us), 3)
_SHARE = Column("% Tot", lambda one, _cumulative: f"{_share(one):.1f}")
_ESTIMATE = Column("Est", lambda one, _cumulative: _or_none(one.estimated_us, show_us))
BASIC = (_TYPE, _AVERAGE, _P90, _SHARE)
ESTIMATED = (_TYPE, replace(_AVERAGE, goes=4), _ESTIMATE, _P90, _SHARE)
DETAIL = (
    _TYPE,
    _AVERAGE,
    Column("Total", lambda one, _cumulative: show_us(one.total_us), 1),
    _SHARE,
    Column("Cum %", lambda _one, cumulative: f"{cumulative:.1f}", 4),
    _P90,
    Column("DRAM(R)", lambda one, _cumulative: _or_none(one.dram_read_bytes, show_size), 5),
    Column("VTCM Hit", lambda one, _cumulative: _or_none(one.vtcm_hit_ratio, "{:.1%}".format), 2),
)


def lines(trace: Trace, top: int, width: int) -> Iterator[str]:
    """The trace in at most so many columns of text; a name keeps its end."""
    yield from _wrapped(_head(trace), width)
    if not trace.usable:
        return
    detail = trace.metadata.tracing_level == "detail" and trace.status is TraceStatus.OK
    shown = trace.operators[:top]
    yield ""
    basic = ESTIMATED if trace.summary.profiler_operator_us else BASIC
    columns: Sequence[Column] = DETAIL if detail else basic
    if all(one.p50_us is not None for one in shown):  # what they are sorted by
        columns = tuple(
            replace(_P50, goes=one.goes) if one.head == "Avg" else one for one in columns
        )
    yield from _table(shown, columns, width, numbered=detail)
    yield from _wrapped(_tail(trace, shown), width)


def _head(trace: Trace) -> Iterator[str]:
    about = trace.metadata
    component = f" {about.component}" if about.component else ""
    where = f"{about.ep} {about.device}".rstrip()
    yield f"{about.model}{component} on {where}{' (emulated)' if about.emulated else ''}"
    if about.runtime:
        yield f"  {about.runtime}"
    if about.emulated:
        yield f"  {EMULATED}"
    if trace.status is not TraceStatus.OK:
        yield f"  {trace.status}: {trace.error}"
    if not trace.usable:
        return
    level = about.tracing_level if trace.status is TraceStatus.OK else "basic"
    warm = f" after {about.warmup} to warm up" if about.warmup else ""
    yield f"  level {level}, {counted(about.num_samples, 'iteration')}{warm}"
    if text := _memory(trace):
        yield f"  {text}"
    for text in about.warnings or ():
        yield f"  warning: {text}"


def _memory(trace: Trace) -> str:
    whole = trace.summary
    read, written, peak = whole.dram_read_bytes, whole.dram_write_bytes, whole.vtcm_peak_bytes
    sizes = {"DRAM read": read, "written": written, "VTCM peak": peak}
    parts = [f"{name} {show_size(size)}" for name, size in sizes.items() if size is not None]
    if whole.utilization_pct is not None:
        parts.append(f"utilization {whole.utilization_pct:.1f} %")
    return ", ".join(parts)


def _table(
    operators: Sequence[Operator], columns: Sequence[Column], width: int, *, numbered: bool
) -> Iterator[str]:
    names = ["Node", *(one.name for one in operators)]
    cumulative = accumulate(map(_share, operators))
    rows = list(zip(operators, cumulative, strict=True))
    texts = {one.head: [one.head, *(one.cell(*row) for row in rows)] for one in columns}
    wide = {head: max(map(len, cells)) for head, cells in texts.items()}
    prefix = len(str(len(rows))) + 2 if numbered else 0

    def room() -> int:
        return width - prefix - sum(wide[head] + 2 for head in texts)

    longest = max(map(len, names))
    for one in sorted((one for one in columns if one.goes), key=lambda one: one.goes):
        if room() < min(_NARROWEST, longest):
            del texts[one.head]
    name = max(len("Node"), min(longest, room()))
    for at, node in enumerate(names):
        number = [str(at or "#").rjust(prefix - 2)] if prefix else []
        cells = [
            cells[at].ljust(wide[head]) if head == _TYPE.head else cells[at].rjust(wide[head])
            for head, cells in texts.items()
        ]
        yield "  ".join([*number, cut(node, name).ljust(name), *cells]).rstrip()


def _tail(trace: Trace, shown: Sequence[Operator]) -> Iterator[str]:
    mark = " (emulated)" if trace.metadata.emulated else ""
    rest = len(trace.operators) - len(shown)
    if rest:
        share = sum(map(_share, trace.operators[len(shown) :]))
        yield f"... and {counted(rest, 'more operator')}, {share:.1f} %"
    yield ""
    yield from _totals(trace, mark)
    told = trace.statistics
    types = sorted(told.types, key=lambda one: -_share(one))[:_TYPES]
    yield f"types      {', '.join(f'{one.type} {_share(one):.1f} %' for one in types)}"
    if trace.metadata.onnx_nodes is not None:
        mapped = f"{told.mapped_operators} of {counted(told.operators, 'operator')}"
        nodes = f"{told.onnx_nodes_covered} of {counted(trace.metadata.onnx_nodes, 'ONNX node')}"
        yield f"mapped     {mapped} to {nodes}"


def _totals(trace: Trace, mark: str) -> Iterator[str]:
    whole, outside = trace.summary, trace.statistics.other_us
    plain, added = whole.unprofiled_us, whole.profiler_operator_us
    slow = whole.inference_us if plain is None else whole.inference_us or whole.wall_us
    if plain is not None:
        told = f", under the profiler {show_us(slow)}" if slow is not None else ""
        yield f"inference  {show_us(plain)}{mark}{told}"
    elif slow is not None:
        yield f"inference  {show_us(slow)}{mark}"
    operators = f"operators  {show_us(whole.operators_us or 0)}{mark}"
    if added:
        operators += f"; Est is without the {show_us(added)} the profiler adds to each"
    elif plain is None and outside is not None and abs(outside) >= 0.05:
        operators += f", {show_us(max(outside, 0))} outside of them"
    yield operators


def _type(one: Operator) -> str:
    more = len(one.onnx_nodes or ()) - 1
    name = one.type if len(one.type) <= _WIDEST_TYPE else f"{one.type[: _WIDEST_TYPE - 3]}..."
    return f"{name or '-'} +{more}" if more > 0 else name or "-"


def cut(text: str, room: int) -> str:
    """A name without its beginning: paths differ most at their ends."""
    return text if len(text) <= room else f"...{text[len(text) - room + 3 :]}"


def _wrapped(texts: Iterator[str], width: int) -> Iterator[str]:
    import textwrap

    for text in texts:
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        wrapped = textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
        yield from wrapped or [""]
