"""Where a sweep stands, counted from its events; the same for every way of showing it.

Counts move by one event at a time and are never recounted: a sweep may have 20,000 cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flows.exports import is_export
from matrix.status import Status
from state.records import Event

BUSY = frozenset(
    {Status.BUILDING, Status.BUILT, Status.VERIFYING, Status.VERIFIED, Status.PUBLISHING}
)


class Tally:
    """Counts cells (exports apart), who works on what, and how long the rest may take."""

    def __init__(
        self,
        statuses: Mapping[str, Status],
        *,
        publish: bool = True,
        slots: int = 1,
        expected: Mapping[str, float] | None = None,
    ) -> None:
        self.publish = publish
        self.slots = max(slots, 1)
        self.busy: dict[str, tuple[str, Status, float]] = {}
        """By owner: the cell at hand, its status, since when."""
        self.notice = ""
        """What the one who looks should know besides; empty: nothing."""
        self.total = sum(not is_export(cell) for cell in statuses)
        self.failed = 0
        """Cells and exports that failed."""
        self._statuses: dict[str, Status] = {}
        self._counts: Counter[Status] = Counter()
        self._expected = expected or {}
        self._started: dict[str, float] = {}
        self._took = (0, 0.0)
        for cell, status in statuses.items():
            self._move(cell, status)

    def apply(self, event: Event) -> None:
        """Take in one event."""
        cell, status = event.cell, event.status
        if cell is None or status is None:
            return
        self._move(cell, status)
        if event.owner is not None and status in BUSY:
            self.busy[event.owner] = (cell, status, event.at)
        elif event.owner in self.busy and self.busy[event.owner][0] == cell:
            del self.busy[event.owner]
        if status is Status.BUILDING:
            self._started[cell] = event.at
        elif self.final(status) and cell in self._started:
            count, seconds = self._took
            self._took = (count + 1, seconds + event.at - self._started.pop(cell))

    def _move(self, cell: str, status: Status) -> None:
        before = self._statuses.get(cell)
        self._statuses[cell] = status
        self.failed += status.failed - (before.failed if before else False)
        if not is_export(cell):
            self._counts[status] += 1
            if before:
                self._counts[before] -= 1

    def final(self, status: Status) -> bool:
        """Whether nothing more happens to a cell of this status in this sweep."""
        if status is Status.VERIFIED:
            return not self.publish
        return status.done or status.failed or status is Status.CANCELLED

    @property
    def ended(self) -> int:
        """Cells that are through, well or badly."""
        return sum(count for status, count in self._counts.items() if self.final(status))

    def counts(self) -> dict[str, int]:
        """Cells by status, in the order of the enum."""
        return {str(status): self._counts[status] for status in Status if self._counts[status]}

    def seconds_left(self) -> float | None:
        """From this run's own pace, or before that from history; None: no idea yet."""
        left = self.total - self.ended
        if not left:
            return 0.0
        count, seconds = self._took
        if count >= 2 * self.slots:
            return left * seconds / count / self.slots
        known = [
            seconds
            for cell, seconds in self._expected.items()
            if not self.final(self._statuses.get(cell, Status.PLANNED))
        ]
        return sum(known) / self.slots if len(known) >= left else None
