"""What each worker slot did when, from the events of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flows.cli.quantity import brief
from flows.observe.masking import masked
from flows.observe.report.document import Bar, Distinct, Step, Timeline, Worker
from matrix.model import is_export
from matrix.status import Status
from state.records import Event, Kind

BUILD_LANE, PUBLISH_LANE = 0, 1
_LANES = {
    Status.BUILDING: BUILD_LANE,
    Status.VERIFYING: BUILD_LANE,
    Status.PUBLISHING: PUBLISH_LANE,
}
"""The statuses that take time."""
_SHORTEST_BREAK = 120.0
_CELL_KINDS = frozenset(
    {Kind.STATUS, Kind.SEEDED, Kind.UNSEEDED, Kind.RESUMED, Kind.RETRY, Kind.HANDED_BACK}
)


@dataclass(slots=True)
class History:
    """Reads all events of a sweep once, in order."""

    owners: Distinct[str]
    cells: Mapping[str, int]
    """The place of each cell in the document."""
    steps: dict[str, list[Step]] = field(default_factory=dict)
    _under_way: dict[str, tuple[Status, float, int]] = field(default_factory=dict)
    _bars: dict[int, list[Bar]] = field(default_factory=dict)

    def read(self, events: Iterable[Event]) -> None:
        """Take in events."""
        for event in events:
            if event.cell is None or event.cell not in self.cells or event.kind not in _CELL_KINDS:
                if event.kind is Kind.LOST:
                    self._drop(event)
                continue
            self._finish(event)
            self._begin(event)
            owner = None if event.owner is None else self.owners.of(event.owner)
            what = str(event.status) if event.kind is Kind.STATUS else str(event.kind)
            step = Step(_round(event.at), what, owner, _why(event))
            self.steps.setdefault(event.cell, []).append(step)

    def _begin(self, event: Event) -> None:
        if event.owner is not None and event.cell is not None and event.status in _LANES:
            owner = self.owners.of(event.owner)
            self._under_way[event.cell] = (event.status, event.at, owner)

    def _finish(self, event: Event) -> None:
        assert event.cell is not None
        begun = self._under_way.pop(event.cell, None)
        # The work of a lost worker has no known end and is not shown.
        if begun is None or event.owner is None or self.owners.of(event.owner) != begun[2]:
            return
        status, start, owner = begun
        end = max(start, event.at)
        bar = Bar(self.cells[event.cell], str(status), _round(start), _round(end), _LANES[status])
        self._bars.setdefault(owner, []).append(bar)

    def _drop(self, event: Event) -> None:
        for cell in [name for name in self._under_way if name.rpartition("@")[0] == event.model]:
            del self._under_way[cell]

    def timeline(self) -> Timeline:
        """Workers in the order in which they began to work."""
        exports = {place for name, place in self.cells.items() if is_export(name)}
        workers = [
            Worker(
                owner=owner,
                cells=len({bar.cell for bar in bars if bar.lane == BUILD_LANE} - exports),
                busy=round(sum(bar.end - bar.start for bar in bars if bar.lane == BUILD_LANE), 3),
                bars=tuple(sorted(bars, key=lambda bar: (bar.start, bar.lane))),
            )
            for owner, bars in self._bars.items()
        ]
        workers.sort(key=lambda worker: worker.bars[0].start)
        return Timeline(stretches([bar for worker in workers for bar in worker.bars]), workers)


def _why(event: Event) -> str:
    data = event.data or {}
    if not data.get("failure"):
        return ""
    stage = f" in {data['stage']}" if data.get("stage") else ""
    return masked(brief(f"{data['failure']}{stage}: {data.get('message') or ''}"))


def stretches(bars: Sequence[Bar]) -> list[tuple[float, float]]:
    """The times in which anything happened, without long breaks between runs."""
    merged: list[tuple[float, float]] = []
    for bar in sorted(bars, key=lambda bar: bar.start):
        if merged and bar.start - merged[-1][1] <= _SHORTEST_BREAK:
            merged[-1] = (merged[-1][0], max(merged[-1][1], bar.end))
        else:
            merged.append((bar.start, bar.end))
    return merged


def _round(at: float) -> float:
    return round(at, 3)
