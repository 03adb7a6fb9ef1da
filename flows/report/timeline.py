"""What each worker slot did when, from the events of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flows.output.masking import masked
from flows.output.quantity import brief
from flows.report.grid import known
from matrix.model import is_export
from matrix.status import Status
from state.records import Event, Kind

BUILD_LANE, PUBLISH_LANE = 0, 1
_LANES = {
    Status.BUILDING: BUILD_LANE,
    Status.VERIFYING: BUILD_LANE,
    Status.PUBLISHING: PUBLISH_LANE,
}
"""The statuses that take time; a slot publishes during the next build."""
_SHORTEST_BREAK = 120.0
_CELL_KINDS = frozenset(
    {Kind.STATUS, Kind.SEEDED, Kind.UNSEEDED, Kind.RESUMED, Kind.RETRY, Kind.HANDED_BACK}
)
Json = dict[str, Any]


class History:
    """What all events of a sweep say, in order. `cells`: the place of each in the document."""

    def __init__(self, cells: Mapping[str, int], events: Iterable[Event]) -> None:
        self.cells = cells
        self.owners: dict[str, int] = {}
        """The place of each in the document."""
        self.steps: dict[str, list[Json]] = {}
        """What happened to each cell: when, what, by whom, and why an attempt failed."""
        self._under_way: dict[str, tuple[Status, float, int]] = {}
        self._bars: dict[int, list[Json]] = {}
        for event in events:
            if event.kind is Kind.LOST:
                # The work of a lost worker has no known end and is not shown.
                lost = f"{event.model}@"
                for cell in [one for one in self._under_way if one.startswith(lost)]:
                    del self._under_way[cell]
            elif event.cell is not None and event.cell in self.cells and event.kind in _CELL_KINDS:
                self._step(event, event.cell)

    def _step(self, event: Event, cell: str) -> None:
        owner, begun = None, self._under_way.pop(cell, None)
        if event.owner is not None:
            owner = self.owners.setdefault(event.owner, len(self.owners))
        if begun is not None and owner == begun[2]:
            status, at, _owner = begun
            bar = {"cell": self.cells[cell], "what": str(status), "start": round(at, 3)}
            bar |= {"end": round(max(at, event.at), 3), "lane": _LANES[status]}
            self._bars.setdefault(owner, []).append(bar)
        if owner is not None and event.status in _LANES:
            self._under_way[cell] = event.status, event.at, owner
        what = str(event.status) if event.kind is Kind.STATUS else str(event.kind)
        step = known(at=round(event.at, 3), what=what, owner=owner, why=_why(event))
        self.steps.setdefault(cell, []).append(step)

    def timeline(self) -> Json:
        """Workers in the order in which they began, and when anything happened."""
        exports = {place for name, place in self.cells.items() if is_export(name)}
        workers = []
        for owner, bars in self._bars.items():
            building = [bar for bar in bars if bar["lane"] == BUILD_LANE]
            cells = len({bar["cell"] for bar in building} - exports)
            busy = round(sum(bar["end"] - bar["start"] for bar in building), 3)
            bars.sort(key=lambda bar: (bar["start"], bar["lane"]))
            workers.append({"owner": owner, "cells": cells, "busy": busy, "bars": bars})
        workers.sort(key=lambda worker: worker["bars"][0]["start"])
        spans = [(bar["start"], bar["end"]) for bars in self._bars.values() for bar in bars]
        return {"stretches": stretches(spans), "workers": workers}


def _why(event: Event) -> str:
    data = event.data or {}
    if not data.get("failure"):
        return ""
    stage = f" in {data['stage']}" if data.get("stage") else ""
    return masked(brief(f"{data['failure']}{stage}: {data.get('message') or ''}"))


def stretches(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times in which anything happened, without long breaks between runs."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= _SHORTEST_BREAK:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
