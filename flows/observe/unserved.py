"""What keeps a sweep from being built, read from its state alone.

The parent of a fleet, or a local run, notes in the state which cells no available machine can
do. Without any note, no parent has begun.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.output.quantity import counted, show_duration
from flows.plan.recorded import FLEET, PLAN
from matrix.model import is_export
from matrix.needs import Words, emulates, is_measuring, lacking, serves
from state.damage import reading
from state.records import BenchState, Event, Kind
from state.transitions import FINAL as MEASURABLE

if TYPE_CHECKING:
    from state.reading import StateReader

UNSERVED = "unserved"
"""Key of the notice: an entry for each group of cells that no available machine can do, and each
kind of machine whose slots fail."""

BEAT, SILENCE = "heartbeat", "silence"
"""Keys of the notice by which a parent says that it lives: the seconds until the next one, and
those after which it is silent."""
NOT_TAKEN_UP = "no worker has started this sweep yet: does one run in its pool (modelmill worker)?"
_SHOWN = 3
_KEPT = 5
_FOUND = (
    "engine:", "os:", "arch:", "ep:", "memory:", "bench:", "bench-emulated:", "compile:",
    "compile-emulated:",
)  # fmt: skip
"""How words begin that a machine finds out by itself."""
_FLAGS = {"remote-code": "--allow-remote-code", "pickle": "--allow-pickle"}
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unserved:
    """What the last run of a sweep waits for."""

    stamp: str = ""
    fleet: bool = False
    """Whether the last run is on a fleet."""
    ordered_at: float | None = None
    """When the sweep was submitted to a fleet, if no parent has begun."""
    groups: Sequence[Json] = ()
    silent: float | None = None
    """For how many seconds its parent has been silent, if that is too long."""

    def lines(self) -> list[str]:
        """For people; empty: nothing known."""
        if self.ordered_at is not None:
            return [NOT_TAKEN_UP]
        lines = []
        if self.silent is not None:
            told = f"its parent has said nothing for {show_duration(self.silent)}"
            lines.append(f"{told}; whoever works on the sweep or follows it asks for another one")
        with reading("a notice of what waits for a machine"):
            for group in self.groups:
                lines += [_what(group), self._next(group)]
        return lines

    def _next(self, group: Json) -> str:
        words = [str(word) for word in group.get("needs", ())]
        if "ends" in group:
            return f"  next: repair the machine that offers {' '.join(words)}; it is tried again"
        lacks = [str(word) for word in group.get("missing", words)]
        flags = [flag for word, flag in _FLAGS.items() if word in lacks]
        if not self.fleet and group.get("emulator"):
            return f"  next: {' '.join(['modelmill resume', self.stamp, '--emulated', *flags])}"
        if not self.fleet:
            found = [word for word in lacks if word.startswith(_FOUND)]
            own = [f"--has {word}" for word in lacks if word not in (*found, *_FLAGS)]
            where = f"on a machine that offers {' and '.join(found)}: " if found else ""
            return f"  next: {where}{' '.join(['modelmill resume', self.stamp, *flags, *own])}"
        measures = ["--bench-machine"] if is_measuring(words) else []
        start = " ".join(["start modelmill worker", *measures, *flags])
        return f"  next: {start} on a machine with {' '.join(w for w in words if w not in _FLAGS)}"


def unserved_of(state: StateReader, sweep: int) -> Unserved:
    """What the last run of a sweep waits for."""
    begun = state.newest_event(sweep, Kind.BEGUN)
    if begun is None:
        return Unserved()
    started = state.newest_event(sweep, Kind.STARTED)
    fleet = started is not None and FLEET in (started.data or {})
    stamp = state.sweep(sweep).stamp
    events = list(state.events(sweep, begun.id, kind=Kind.NOTICE))
    notices = [one.data or {} for one in events]
    # A parent notes the plan of a run when it begins; the command that submits one does not.
    if fleet and not any(PLAN in notice for notice in notices):
        return Unserved(stamp, fleet, begun.at)
    told = [notice[UNSERVED] for notice in notices if UNSERVED in notice]
    beat = last_beat(events)
    silent = state.now() - beat[0].at if beat else 0.0
    late = beat is not None and silent > beat[1]
    return Unserved(stamp, fleet, groups=told[-1] if told else (), silent=silent if late else None)


def last_beat(notices: Iterable[Event]) -> tuple[Event, float] | None:
    """The last of these by which a parent says that it lives, and after how long it is silent."""
    beats = [one for one in notices if BEAT in (one.data or {})]
    if not beats:
        return None
    with reading("the heartbeat of a parent"):
        limit = float((beats[-1].data or {})[SILENCE])
    return beats[-1], limit


def unserved_groups(
    state: StateReader, sweep: int, wanted: Iterable[Words], machines: Collection[Words]
) -> list[dict[str, object]]:
    """Of cells with these needs, those that no machine can do, with what they wait for."""
    groups: list[dict[str, object]] = []
    for needs in wanted:
        if any(serves(offers, needs) for offers in machines):
            continue
        cells, missing = _cells(state, sweep, needs), lacking(machines, needs)
        group: dict[str, object] = {
            "emulator": any(emulates(offers, missing) for offers in machines),
            "what": "benchmark" if is_measuring(needs) else "cell",
            "needs": sorted(needs),
            "missing": missing,
            "machines": len(machines),
            "cells": cells[:_KEPT],
            "count": len(cells),
        }
        groups.append(group)
    return groups


def _cells(state: StateReader, sweep: int, needs: Words) -> list[str]:
    if is_measuring(needs):
        wanted = (
            one for one in state.benches(sweep, needs=needs) if one.state is BenchState.WANTED
        )
        good = state.statuses(sweep)
        return [one.cell for one in wanted if good[one.cell] in MEASURABLE]
    found = state.statuses(sweep, needs=needs)
    return [cell for cell, status in found.items() if status.open and not is_export(cell)]


def one_line(unserved: Sequence[Json]) -> str:
    """The same in one line, beside a progress bar."""
    return "; ".join(map(_what, unserved))


def _what(group: Json) -> str:
    if "ends" in group:
        return f"slots fail: {group['ends']}"
    names = [str(name) for name in group.get("cells", ())]
    count = int(group.get("count", len(names)))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if count > _SHOWN else "")
    wait = f"{counted(count, str(group.get('what', 'cell')))} {'waits' if count == 1 else 'wait'}"
    missing = " and ".join(str(word) for word in group.get("missing", group.get("needs", ())))
    if not group.get("machines", 1):
        return f"{wait}: no worker is alive ({shown})"
    return f"{wait} for a machine that offers {missing} ({shown})"
