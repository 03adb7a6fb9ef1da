"""One trace on a terminal: its largest operators, and what all of them add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flows.cli.quantity import counted, show_microseconds, show_size
from flows.observe.evidence import EMULATED
from workers.measure.trace.result import Operator, Trace, TraceStatus

_NARROWEST = 30
"""Characters of a name; columns are left out before names get shorter."""
_WIDEST_TYPE = 18
_TYPES = 5


@dataclass(frozen=True, slots=True)
class Row:
    """An operator in the table."""

    number: int
    operator: Operator
    cumulative: float


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers, or of types."""

    head: str
    cell: Callable[[Row], str]
    goes: int = 0
    """The order in which columns are left out where there is no room; 0: it stays."""
    left: bool = False


def _percent(value: float) -> str:
    return f"{value:.1f}"


def _or_none(value: float | None, show: Callable[[float], str]) -> str:
    return "-" if value is None else show(value)


_TYPE = Column("Type", lambda row: _type(row.operator), left=True)
_AVERAGE = Column("Avg", lambda row: show_microseconds(row.operator.avg_us))
_P90 = Column("p90", lambda row: _or_none(row.operator.p90_us, show_microseconds), 3)
_SHARE = Column("% Tot", lambda row: _percent(row.operator.percent_of_total))
BASIC = (_TYPE, _AVERAGE, _P90, _SHARE)
DETAIL = (
    _TYPE,
    _AVERAGE,
    Column("Total", lambda row: show_microseconds(row.operator.total_us), 1),
    _SHARE,
    Column("Cum %", lambda row: _percent(row.cumulative), 4),
    _P90,
    Column("DRAM(R)", lambda row: _or_none(row.operator.dram_read_bytes, show_size), 5),
    Column(
        "VTCM Hit",
        lambda row: _or_none(row.operator.vtcm_hit_ratio, lambda part: f"{part:.1%}"),
        2,
    ),
)


def lines(trace: Trace, top: int, width: int) -> Iterator[str]:
    """The trace in at most so many columns of text; a name keeps its end."""
    yield from _cut_all(_head(trace), width)
    if not trace.usable:
        return
    detail = trace.metadata.tracing_level == "detail" and trace.status is TraceStatus.OK
    shown = trace.operators[:top]
    yield ""
    yield from _table(_rows(shown), DETAIL if detail else BASIC, width)
    yield from _cut_all(_tail(trace, shown), width)


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
    yield f"  level {level}, {counted(about.num_samples, 'iteration')}{_warm(trace)}"
    if text := _memory(trace):
        yield f"  {text}"


def _warm(trace: Trace) -> str:
    return f" after {trace.metadata.warmup} to warm up" if trace.metadata.warmup else ""


def _memory(trace: Trace) -> str:
    whole = trace.summary
    parts = [
        f"{name} {show(value)}"
        for name, value, show in (
            ("DRAM read", whole.dram_read_bytes, show_size),
            ("written", whole.dram_write_bytes, show_size),
            ("VTCM peak", whole.vtcm_peak_bytes, show_size),
            ("utilization", whole.utilization_pct, lambda part: f"{part:.1f} %"),
        )
        if value is not None
    ]
    return ", ".join(parts)


def _rows(operators: Sequence[Operator]) -> list[Row]:
    rows, cumulative = [], 0.0
    for number, one in enumerate(operators, 1):
        cumulative += one.percent_of_total
        rows.append(Row(number, one, cumulative))
    return rows


def _table(rows: Sequence[Row], columns: Sequence[Column], width: int) -> Iterator[str]:
    numbered = len(columns) > len(BASIC)
    widths = {
        one.head: max(len(one.head), *(len(one.cell(row)) for row in rows)) for one in columns
    }
    prefix = len(str(len(rows))) + 2 if numbered else 0

    def room(kept: Sequence[Column]) -> int:
        return width - prefix - sum(widths[one.head] + 2 for one in kept)

    longest = max(len("Node"), *(len(row.operator.name) for row in rows))
    kept = list(columns)
    for one in sorted((one for one in columns if one.goes), key=lambda one: one.goes):
        if room(kept) < min(_NARROWEST, longest):
            kept.remove(one)
    name = max(len("Node"), min(longest, room(kept)))

    def line(number: str, node: str, cells: Sequence[str]) -> str:
        parts = [number.rjust(prefix - 2)] if numbered else []
        parts.append(cut(node, name).ljust(name))
        for one, cell in zip(kept, cells, strict=True):
            wide = widths[one.head]
            parts.append(cell.ljust(wide) if one.left else cell.rjust(wide))
        return "  ".join(parts).rstrip()

    yield line("#", "Node", [one.head for one in kept])
    for row in rows:
        yield line(str(row.number), row.operator.name, [one.cell(row) for one in kept])


def _tail(trace: Trace, shown: Sequence[Operator]) -> Iterator[str]:
    mark = " (emulated)" if trace.metadata.emulated else ""
    rest = len(trace.operators) - len(shown)
    if rest:
        share = sum(one.percent_of_total for one in trace.operators[len(shown) :])
        yield f"... and {counted(rest, 'more operator')}, {share:.1f} %"
    yield ""
    whole, told = trace.summary, trace.statistics
    if whole.inference_us is not None:
        yield f"inference  {show_microseconds(whole.inference_us)}{mark}"
    operators = f"operators  {show_microseconds(whole.operators_us or 0)}{mark}"
    if told.other_us is not None and abs(told.other_us) >= 0.05:
        operators += f", {show_microseconds(max(told.other_us, 0))} outside of them"
    yield operators
    types = [f"{one.type} {one.percent_of_total:.1f} %" for one in told.types[:_TYPES]]
    yield f"types      {', '.join(types)}"
    if trace.metadata.onnx_nodes is not None:
        yield (
            f"mapped     {told.mapped_operators} of {counted(told.operators, 'operator')} to "
            f"{told.onnx_nodes_covered} of {counted(trace.metadata.onnx_nodes, 'ONNX node')}"
        )


def _type(one: Operator) -> str:
    more = len(one.onnx_nodes or ()) - 1
    name = one.type if len(one.type) <= _WIDEST_TYPE else f"{one.type[: _WIDEST_TYPE - 3]}..."
    return f"{name or '-'} +{more}" if more > 0 else name or "-"


def cut(text: str, room: int) -> str:
    """A name without its beginning: paths differ most at their ends."""
    return text if len(text) <= room else f"...{text[len(text) - room + 3 :]}"


def _cut_all(texts: Iterator[str], width: int) -> Iterator[str]:
    for text in texts:
        yield from _wrapped(text, width)


def _wrapped(text: str, width: int) -> Iterator[str]:
    import textwrap

    indent = len(text) - len(text.lstrip())
    yield from textwrap.wrap(
        text, width, subsequent_indent=" " * (indent + 2), break_on_hyphens=False
    ) or [""]
