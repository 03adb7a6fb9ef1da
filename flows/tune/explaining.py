"""Where the gain of a champion comes from: its trace against that of the baseline."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flows.trace.difference import difference
from flows.tune.place import Place
from flows.tune.record import Tuning
from machine.waits import Cancelled
from matrix.errors import MillError
from matrix.overlay import overlay
from state.errors import StateError

MOST_GROUPS = 25
Json = dict[str, Any]


def explained(tuning: Tuning, place: Place) -> Json:
    """`groups` of operators, the largest difference first, or a `reason` why there are none.

    No verdict rests on it, so whatever fails here costs the explanation alone.
    """
    change = tuning.step(tuning.champion).hypothesis
    try:
        profile = place.profile(change.compiled) if change.compiled else None
        champion = overlay(tuning.cell, change, profile)
        traces = []
        for cell, session in ((tuning.cell, {}), (champion, change.runtime)):
            place.shown.doing(f"tracing {cell.id}", 0.0)
            made = place.make(cell, session)
            try:
                graphs = sorted(made.subject.graphs, key=lambda one: one.component)
                traces.append([(one.component, place.trace(made, one)) for one in graphs])
            finally:
                made.release()
    except (StateError, Cancelled):
        raise
    except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
        why = str(error) if isinstance(error, MillError) else repr(error)
        return {"reason": f"they could not be traced: {why}"}
    before, after = traces
    parts = [[name for name, _ in traces] for traces in (before, after)]
    if parts[0] != parts[1]:
        return {"reason": "they cannot be compared: their graphs differ"}
    for _, one in (*before, *after):
        if not one.usable or not one.operators:
            return {"reason": f"they could not be traced: {one.error or 'it shows no operator'}"}
    groups = [
        {**asdict(group), "name": f"{component}/{group.name}" if component else group.name}
        for (component, was), (_, now) in zip(before, after, strict=True)
        for group in difference(was, now).groups
    ]
    groups.sort(key=lambda one: -abs(one["delta_us"]))
    return {"groups": groups[:MOST_GROUPS]}
