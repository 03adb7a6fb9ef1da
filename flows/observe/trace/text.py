"""The difference of two traces on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from flows.cli.table import render
from flows.observe.trace.difference import Difference, Group

_NARROWEST = 16


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
    times = [(_signed(one), show_us(one.before_us), show_us(one.after_us)) for one in shown]
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
        yield f"... and {rest} more, {left:+.1f} us together"


def show_us(microseconds: float) -> str:
    """A time of operators for people."""
    if microseconds >= 10_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds:.1f} us" if microseconds >= 1 else f"{microseconds:.3f} us"


def _signed(one: Group) -> str:
    return ("+" if one.delta_us >= 0 else "-") + show_us(abs(one.delta_us))


def _label(one: Group, room: int) -> str:
    full = f"{one.name} ({one.what})" if one.what else one.name
    if len(full) <= room:
        return full
    return one.name if len(one.name) <= room else f"...{one.name[len(one.name) - room + 3 :]}"
