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

from flows.cli.quantity import show_us
from flows.cli.table import render
from flows.observe.trace.table import cut
from workers.measure.trace.result import Metadata, Operator, Trace

_NARROWEST = 16
_COMPARED = ("ep", "device", "tracing_level", "threads", "machine", "runtime")
_CALLED = {"ep": "provider", "tracing_level": "level"}


@dataclass(frozen=True, slots=True)
class Group:
    """Operators of both traces that do the same work."""

    before: tuple[Operator, ...]
    after: tuple[Operator, ...]
    before_us: float
    """In one inference."""
    after_us: float

    @property
    def delta_us(self) -> float:
        """How much longer it takes."""
        return self.after_us - self.before_us

    @property
    def name(self) -> str:
        """Its longest operator, of the trace in which it takes longer."""
        longer = self.after if self.delta_us >= 0 and self.after else self.before or self.after
        return max(longer, key=lambda one: one.total_us).name

    @property
    def what(self) -> str:
        """What became of it."""
        if not self.before:
            return "only after"
        if not self.after:
            return "only before"
        counts = len(self.before), len(self.after)
        return "" if counts == (1, 1) else f"{counts[0]} -> {counts[1]} operators"


@dataclass(frozen=True, slots=True)
class Difference:
    """Two traces compared; the groups are sorted by the size of their difference."""

    before: Metadata
    after: Metadata
    before_us: float
    """All operators in one inference, by their medians where every sample is known."""
    after_us: float
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    """What else differs between the two, and what makes their times doubtful."""

    @property
    def delta_us(self) -> float:
        """How much longer all operators take together."""
        return self.after_us - self.before_us

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "before": self.before.model,
            "after": self.after.model,
            "before_emulated": self.before.emulated,
            "after_emulated": self.after.emulated,
            "before_us": self.before_us,
            "after_us": self.after_us,
            "delta_us": self.delta_us,
            "notes": list(self.notes),
            "groups": [
                {
                    "name": one.name,
                    "what": one.what,
                    "before_us": one.before_us,
                    "after_us": one.after_us,
                    "delta_us": one.delta_us,
                    "before": [_named(each) for each in one.before],
                    "after": [_named(each) for each in one.after],
                }
                for one in self.groups
            ],
        }


def difference(before: Trace, after: Trace) -> Difference:
    """Compare two traces of the same model, or of two builds of it.

    Medians are compared where both sources keep every sample: a mean may hold one that other work
    on the machine has drawn out.
    """
    middle = all(one.samples_us for one in (*before.operators, *after.operators))
    groups = [
        Group(was, now, _cost(was, before, middle), _cost(now, after, middle))
        for was, now in _together(before.operators, after.operators)
    ]
    groups.sort(key=lambda one: (-abs(one.delta_us), one.name))
    return Difference(
        before.metadata,
        after.metadata,
        _cost(before.operators, before, middle),
        _cost(after.operators, after, middle),
        tuple(groups),
        tuple(_notes(before, after)),
    )


def _cost(operators: Iterable[Operator], trace: Trace, middle: bool) -> float:
    """Microseconds in one inference, also of operators that do not run in every one."""
    samples = trace.metadata.num_samples
    return sum(
        (median(one.samples_us) if middle else one.avg_us)
        * (one.sample_count / samples if samples else 1)
        for one in operators
    )


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
        yield "operator", one.op_path or one.name


def _notes(before: Trace, after: Trace) -> Iterator[str]:
    one, other = before.metadata, after.metadata
    for name in _COMPARED:
        was, now = getattr(one, name), getattr(other, name)
        if was != now:
            yield f"{_CALLED.get(name, name)}: {was or 'unknown'} -> {now or 'unknown'}"
    for which, metadata in (("the first", one), ("the second", other)):
        if metadata.emulated:
            yield f"{which} was traced on an emulator: its times say nothing about the device"


def _named(one: Operator) -> dict[str, Any]:
    return {"name": one.name, "type": one.type, "nodes": [n.name for n in one.onnx_nodes or ()]}


def lines(found: Difference, top: int, width: int) -> Iterator[str]:
    """The largest differences first; names are cut at their beginning to fit the width."""
    sides = [
        f"{name} (emulated)" if side.emulated else name
        for name, side in (("before", found.before), ("after", found.after))
    ]
    headers = ("difference", *sides, "operator")
    change = f" ({found.delta_us / found.before_us:+.1%})" if found.before_us else ""
    yield (
        f"operators of one inference: {show_us(found.before_us)} -> {show_us(found.after_us)}"
        f"{change}"
    )
    yield from (f"note: {note}" for note in found.notes)
    shown = [one for one in found.groups if one.delta_us][:top]
    if not shown:
        yield "no operator takes longer or shorter"
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
    rest = len([one for one in found.groups if one.delta_us]) - len(shown)
    if rest:
        left = sum(one.delta_us for one in found.groups) - sum(one.delta_us for one in shown)
        yield f"... and {rest} more, {_signed(left)} together"


def _signed(microseconds: float) -> str:
    return ("+" if microseconds >= 0 else "-") + show_us(abs(microseconds))


def _label(one: Group, room: int) -> str:
    full = f"{one.name} ({one.what})" if one.what else one.name
    return full if len(full) <= room else cut(one.name, room)
