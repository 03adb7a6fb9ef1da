"""Where a sweep stands, counted from its events, for every way of showing it.

Each event moves the counts by one. They are never recounted: a sweep may have 20,000 cells.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from flows.observe.unserved import UNSERVED, one_line
from flows.plan.estimates import ESTIMATE, Estimates, WorkLeft, from_record
from matrix.model import is_export
from matrix.needs import is_measuring
from matrix.status import Status
from state.damage import reading
from state.records import Event, Holder, Kind

OUTAGE = "outage"
"""Key of the notice that the hub cannot be reached, or, if empty, is back."""
CACHE = "cache"
"""Key of the notice of what is wrong with the shared cache, or, if empty, is not any more."""
UNSHOWN = "unshown"
"""Key of a notice: why Prefect does not show the run; empty: it does again."""

BUSY = frozenset(
    {Status.BUILDING, Status.BUILT, Status.VERIFYING, Status.VERIFIED, Status.PUBLISHING}
)
_TOLD = frozenset({Status.BUILDING, Status.VERIFIED})
"""While a cell is built an engine says what it is doing; then it may wait for the feed."""
_BESIDE = frozenset({Status.VERIFIED, Status.PUBLISHING})
"""What happens to a cell while its slot builds the next."""


_NOTICED: Mapping[str, Callable[..., str]] = {
    CACHE: str,
    OUTAGE: str,
    UNSERVED: one_line,
    UNSHOWN: lambda why: f"not shown in Prefect, the sweep continues: {why}" if why else "",
}
"""Notices that are shown: what cannot be used or reached, which cells no machine can do, and why
Prefect does not show the run."""


def held_since(holder: Holder, began: float | None = None) -> float:
    """When a holder took what it has (or began a cell of it), by the monotonic clock. The age comes
    from the state's clock alone; that of this machine may differ, and both may be set."""
    taken = holder.taken_at if began is None else began
    return time.monotonic() - max(0.0, holder.renewed_at - taken)


class SweepProgress:
    """How many cells have which status, who works on what, and how much work is left."""

    def __init__(
        self,
        statuses: Mapping[str, Status],
        *,
        publish: bool = True,
        slots: int = 1,
        known: Estimates | None = None,
    ) -> None:
        self.publish = publish
        self.slots = max(slots, 1)
        self.busy: dict[str, tuple[str, Status, float]] = {}
        """By owner: the cell in work, its status, since when by the monotonic clock."""
        self.activities: dict[str, tuple[str, str]] = {}
        """By owner: the cell that its engine works on, and what the engine says it is doing."""
        self.notice = ""
        """A remark for people who watch; empty: none."""
        self.noticed = dict.fromkeys(_NOTICED, "")
        """What the last notice of each kind says; empty: nothing."""
        self.total = sum(not is_export(cell) for cell in statuses)
        self.failed = 0
        """Cells that failed."""
        self._statuses: dict[str, Status] = {}
        self._counts: Counter[Status] = Counter()
        self._started: dict[str, tuple[float, float]] = {}
        """When a cell was begun, by the state's clock and by the monotonic one."""
        self._measuring: set[str] = set()
        self._left = WorkLeft(known)
        for cell, status in statuses.items():
            self._move(cell, status)

    def use_estimates(self, known: Estimates) -> None:
        """Replace the estimates that the work left is counted by."""
        self._left = WorkLeft(known)
        for cell, status in self._statuses.items():
            if self._waits(status) and not is_export(cell):
                self._left.add(cell)

    def apply(self, event: Event) -> None:
        """Take in one event."""
        data = event.data or {}
        if event.kind is Kind.NOTICE:
            for key in self.noticed.keys() & data.keys():
                with reading(f"event {event.id}: {key}"):
                    self.noticed[key] = _NOTICED[key](data[key])
        if ESTIMATE in data:
            with reading(f"event {event.id}: {ESTIMATE}"):
                self.use_estimates(from_record(data[ESTIMATE]))
        cell, status = event.cell, event.status
        if cell is None or status is None:
            return
        self._move(cell, status)
        if event.owner is not None and status in BUSY:
            at_work, doing, _since = self.busy.get(event.owner, (cell, status, 0.0))
            builds_another = at_work != cell and doing not in _BESIDE
            if status not in _BESIDE or not builds_another:
                self.busy[event.owner] = (cell, status, time.monotonic())
        elif event.owner in self.busy and self.busy[event.owner][0] == cell:
            del self.busy[event.owner]
        if status is Status.BUILDING:
            self._started[cell] = (event.at, time.monotonic())
        elif not self._waits(status) and cell in self._started:
            self._left.took(cell, max(0.0, event.at - self._started.pop(cell)[0]))

    def look_at(self, holders: Iterable[Holder]) -> None:
        """Take in what those who hold models say they are doing; no event reports measuring."""
        told = [one for one in holders if one.cell and one.activity and not one.expired]
        self.activities = {one.owner: (str(one.cell), str(one.activity)) for one in told}
        measuring = {}
        for one in told:
            if is_measuring(one.needs):
                known = self.busy.get(one.owner) if one.owner in self._measuring else None
                since = known[2] if known else held_since(one)
                measuring[one.owner] = (str(one.cell), Status.VERIFIED, since)
        for owner in self._measuring - measuring.keys():
            self.busy.pop(owner, None)
        self.busy |= measuring
        self._measuring = set(measuring)

    def doing(self, owner: str) -> str:
        """What an owner does with its cell: in the engine's words, else its status."""
        cell, status, _since = self.busy[owner]
        about, text = self.activities.get(owner, ("", ""))
        return text if about == cell and status in _TOLD else str(status)

    def _move(self, cell: str, status: Status) -> None:
        before = self._statuses.get(cell)
        self._statuses[cell] = status
        if not is_export(cell):
            self.failed += status.failed - (before.failed if before else False)
            waited = before is not None and self._waits(before)
            if self._waits(status) != waited:
                self._left.add(cell, -1 if waited else 1)
            self._counts[status] += 1
            if before:
                self._counts[before] -= 1

    def _waits(self, status: Status) -> bool:
        """Whether a slot still has work with it; publishing needs none."""
        return not self.final(status) and status not in _BESIDE

    def final(self, status: Status) -> bool:
        """Whether nothing more happens to a cell of this status in this sweep."""
        return status is Status.CANCELLED or not status.unfinished(publish=self.publish)

    @property
    def ended(self) -> int:
        """Cells that are done, whether well or badly."""
        return sum(count for status, count in self._counts.items() if self.final(status))

    @property
    def remarks(self) -> str:
        """The remarks that are shown beside the counts."""
        return "; ".join(filter(None, (self.notice, *self.noticed.values())))

    def counts(self) -> dict[str, int]:
        """Cells by status, in the order of the enum."""
        return {str(status): self._counts[status] for status in Status if self._counts[status]}

    def left_lines(self) -> Iterator[str]:
        """Time left, disk and memory with their ranges, as far as they are known."""
        if self.ended < self.total:
            now = time.monotonic()
            at_hand = {cell: now - seen for cell, (_at, seen) in self._started.items()}
            yield from self._left.lines(self.slots, at_hand)
