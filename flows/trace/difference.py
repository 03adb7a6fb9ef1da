"""Which operators make the difference between two traces.

Operators of two traces belong together if they hold the same node of the ONNX graph or make the
same tensor, however they are called and whatever they are fused with: three operators that are one
in the other trace are one group. What the graph does not know is matched by the source's own name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from flows.output.quantity import show_us
from flows.output.table import render
from flows.trace.table import cut
from workers.measure.trace.result import Metadata, Operator, Trace

_NARROWEST = 16
Json = dict[str, Any]
_COMPARED = ("ep", "device", "tracing_level", "threads", "machine", "runtime")
_CALLED = {"ep": "provider", "tracing_level": "level"}


@dataclass(frozen=True, slots=True)
class Group:
    """Operators of both traces that do the same work."""

    name: str
    """Its longest operator, of the trace in which it takes longer."""
    what: str
    """What became of it."""
    before_us: float
    """In one inference."""
    after_us: float
    delta_us: float
    """How much longer it takes."""
    before: tuple[Json, ...]
    after: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two traces compared; the groups are sorted by the size of their difference."""

    before: str | None
    """The model."""
    after: str | None
    before_emulated: bool
    after_emulated: bool
    before_us: float
    """All operators in one inference, by their medians where every sample is known."""
    after_us: float
    delta_us: float
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    """What else differs between the two, and what makes their times doubtful."""


def difference(before: Trace, after: Trace) -> Difference:
    """Compare two traces of the same model, or of two builds of it.

    Medians are compared where both sources keep every sample: a mean may hold one that other work
    on the machine has drawn out. What a profiler adds to each operator is taken off, where both
    traces tell it: three operators that became one would seem to save it twice.
    """
    middle = all(one.samples_us for one in (*before.operators, *after.operators))
    added = [one.summary.profiler_operator_us for one in (before, after)]

    def cost(operators: Iterable[Operator], of: Trace) -> float:
        """Microseconds in one inference, also of operators that do not run in every one."""
        less = 0.0 if None in added else of.summary.profiler_operator_us or 0.0
        samples, whole = of.metadata.num_samples, 0.0
        for one in operators:
            took = median(one.samples_us) if middle else one.avg_us
            whole += max(0.0, took - less) * (one.sample_count / samples if samples else 1)
        return whole

    groups = [
        _group(was, now, cost(was, before), cost(now, after))
        for was, now in _together(before.operators, after.operators)
    ]
    first, second = cost(before.operators, before), cost(after.operators, after)
    return Difference(
        before.metadata.model,
        after.metadata.model,
        before.metadata.emulated,
        after.metadata.emulated,
        first,
        second,
        second - first,
        tuple(sorted(groups, key=lambda one: (-abs(one.delta_us), one.name))),
        tuple(_notes(before.metadata, after.metadata)),
    )


def _group(
    was: Sequence[Operator], now: Sequence[Operator], before_us: float, after_us: float
) -> Group:
    longer = now if after_us >= before_us and now else was or now
    name = max(longer, key=lambda one: one.total_us).name
    what = "" if len(was) == len(now) == 1 else f"{len(was)} -> {len(now)} operators"
    what = what if was and now else "only before" if was else "only after"
    sides = (tuple(map(_named, was)), tuple(map(_named, now)))
    return Group(name, what, before_us, after_us, after_us - before_us, *sides)


def _together(
    before: Sequence[Operator], after: Sequence[Operator]
) -> Iterator[tuple[tuple[Operator, ...], tuple[Operator, ...]]]:
    """Operators that share a key, directly or through others."""
    everyone = [*before, *after]
    leader = list(range(len(everyone)))

    def root(at: int) -> int:
        while leader[at] != at:
            leader[at] = leader[leader[at]]
            at = leader[at]
        return at

    seen: dict[Hashable, int] = {}
    for at, one in enumerate(everyone):
        for key in _keys(one):
            leader[root(at)] = root(seen.setdefault(key, at))
    groups: dict[int, tuple[list[Operator], list[Operator]]] = {}
    for at, one in enumerate(everyone):
        groups.setdefault(root(at), ([], []))[at >= len(before)].append(one)
    for was, now in groups.values():
        yield tuple(was), tuple(now)


def _keys(one: Operator) -> Iterator[tuple[str, str]]:
    nodes, outputs = one.onnx_nodes or (), one.onnx_outputs or ()
    for node in nodes:
        yield "node", node.name
    for tensor in outputs:
        yield "tensor", tensor
    if not nodes and not outputs:
        # Of a compiled model, whose graph is in a binary: a source names it after its node.
        yield "node", one.op_path or one.name


def _notes(one: Metadata, other: Metadata) -> Iterator[str]:
    for name in _COMPARED:
        was, now = getattr(one, name), getattr(other, name)
        if was != now:
            yield f"{_CALLED.get(name, name)}: {was or 'unknown'} -> {now or 'unknown'}"
    for which, metadata in (("before", one), ("after", other)):
        if metadata.emulated:
            yield f"{which}: traced on an emulator, whose times say nothing about the device"
        yield from (f"{which}: {text}" for text in metadata.warnings or ())


def _named(one: Operator) -> Json:
    return {"name": one.name, "type": one.type, "nodes": [n.name for n in one.onnx_nodes or ()]}


def lines(found: Difference, top: int, width: int) -> Iterator[str]:
    """The largest differences first; names are cut at their beginning to fit the width."""
    marks = [" (emulated)" * one for one in (found.before_emulated, found.after_emulated)]
    headers = ("difference", f"before{marks[0]}", f"after{marks[1]}", "operator")
    change = f" ({found.delta_us / found.before_us:+.1%})" if found.before_us else ""
    whole = f"{show_us(found.before_us)} -> {show_us(found.after_us)}{change}"
    yield f"operators of one inference: {whole}"
    yield from (f"note: {note}" for note in found.notes)
    differ = [one for one in found.groups if one.delta_us]
    shown, rest = differ[:top], differ[top:]
    if not shown:
        yield "no operator takes more or less time"
        return
    times = [
        (_signed(one.delta_us), show_us(one.before_us), show_us(one.after_us)) for one in shown
    ]
    widths = [max(len(row[at]) for row in (headers, *times)) for at in range(3)]
    room = max(_NARROWEST, width - sum(widths) - 6)
    rows = [
        [*(value.rjust(wide) for value, wide in zip(row, widths, strict=True)), _label(one, room)]
        for row, one in zip(times, shown, strict=True)
    ]
    yield from render(headers, rows).splitlines()
    if rest:
        left = _signed(sum(one.delta_us for one in rest))
        yield f"... and {len(rest)} more, {left} together"


def _signed(microseconds: float) -> str:
    return ("+" if microseconds >= 0 else "-") + show_us(abs(microseconds))


def _label(one: Group, room: int) -> str:
    full = f"{one.name} ({one.what})" if one.what else one.name
    return full if len(full) <= room else cut(one.name, room)
