"""The disk budget: bytes are reserved before a stage starts, and room is made before that fails.

In this order: evict what nobody uses, wait for others to finish, fail the one cell that does not
fit. What counts is what the store really holds plus what running stages have reserved.

Who waits holds nothing (see `workers.build.room`) and is served in turn: a build that kept what it
has used while others passed it would in the end be short of room that it takes itself.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from machine.waits import Told, Wait, untold
from matrix.status import FailureClass
from workers.errors import BuildFailed, Cancelled
from workers.store import GcReport, Store

LOW_WATER = 0.9
"""Eviction goes a little further than it must, so that not every cell has to evict."""
LOOKS = 256
"""Others may use the store too: it is measured at least every so many reservations."""
POLL = 0.2
"""Seconds between two looks at cancel while waiting for room."""


class DiskBudget:
    """How much the store may hold; shared by all slots of a process."""

    def __init__(
        self,
        store: Store,
        limit: int = 0,
        *,
        keep_free: int = 256 * 1024 * 1024,
        beside: Callable[[], int] = lambda: 0,
        free: Callable[[Path], int] | None = None,
        evicted: Callable[[GcReport], None] = lambda _report: None,
    ) -> None:
        self._store = store
        self._limit = limit
        self._beside = beside
        """What else takes of the budget: kept packages."""
        self._keep_free = keep_free
        self._free = free or (lambda path: shutil.disk_usage(path).free)
        self._evicted = evicted
        self._reserved = 0
        self._measured: int | None = None
        self._added_before = 0
        self._looks = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """Bytes of the budget that are left to the store; 0: whatever the volume has."""
        return max(self._limit - self._beside(), 1) if self._limit else 0

    @property
    def reserved(self) -> int:
        """Bytes that are set aside for running stages."""
        return self._reserved

    @property
    def waiting(self) -> int:
        """How many builds wait for room."""
        return len(self._queue)

    def claim(self, size: int) -> bool:
        """Set `size` bytes aside if that can be done at once and nobody waits."""
        with self._changed:
            if self._queue or self._lacks(size) is not None:
                return False
            self._reserved += size
            return True

    def give_back(self, size: int) -> None:
        """End what `claim` began."""
        with self._changed:
            self._reserved -= size
            self._changed.notify_all()

    @contextmanager
    def reserve(
        self,
        size: int,
        cancel: threading.Event | None = None,
        *,
        whole: int = 0,
        limit: float = float("inf"),
        told: Told = untold,
    ) -> Iterator[int]:
        """Set `size` bytes aside, or up to `whole` where there can be as many.

        Waits for its turn and for room, and tells of it; call it with nothing of the store in use.
        Raises `BuildFailed` (DISK) when there is nobody left to wait for, or when nobody has begun
        or ended anything for `limit` seconds.
        """
        most = max(size, min(whole, self.limit) if self.limit else whole)
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                amount = self._wait(ticket, size, most, cancel, Wait(limit, told))
                self._reserved += amount
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        try:
            yield amount
        finally:
            self.give_back(amount)

    def _wait(
        self,
        ticket: object,
        size: int,
        most: int,
        cancel: threading.Event | None,
        patience: Wait,
    ) -> int:
        while True:
            if cancel is not None and cancel.is_set():
                raise Cancelled("cancelled while waiting for disk space")
            if self._queue[0] is ticket:
                # Whoever is still at work is seen before what is free: it may end in between.
                others = self._reserved > 0 or self._store.used()
                if self._lacks(most) is None:
                    return most
                if not others:
                    if (reason := self._lacks(size)) is None:
                        return size
                    raise self._full(size, reason)
            signs = (self._reserved, len(self._queue), self._store.oldest_use())
            if patience.is_over(signs, f"{_gb(size)} of disk space"):
                reason = self._lacks(size) or f"needs {_gb(size)} and waits behind another build"
                raise self._full(size, f"{reason}; those that have it do not go on")
            self._changed.wait(POLL)

    def _full(self, size: int, reason: str) -> BuildFailed:
        failure = BuildFailed(
            FailureClass.DISK,
            "reserve",
            reason,
            hint="raise --disk-budget, free some space, or use fewer --jobs",
        )
        if 0 < self.limit < size:
            failure.retryable = False  # it will never fit, however long one waits
        return failure

    def trim(self) -> GcReport | None:
        """Evict what is over the budget now that nothing more is coming; None: nothing was."""
        if not self.limit or self._held(afresh=True) <= self.limit:
            return None
        return self._evict(self.limit)

    def _lacks(self, size: int) -> str | None:
        """Why `size` bytes more do not fit, after having made room where possible."""
        if self.limit:
            room = self.limit - self._reserved - size
            held = self._held()
            if held > room:
                held = self._held(afresh=True)
            if held > room:
                held = self._evict(int(max(room, 0) * LOW_WATER)).kept
            if held > max(room, 0) or room < 0:
                return (
                    f"needs {_gb(size)}, but of the disk budget of {_gb(self.limit)} "
                    f"{_gb(held)} are in use and {_gb(self._reserved)} reserved"
                )
        wanted = size + self._reserved + self._keep_free
        if self._free(self._store.root) < wanted:
            lacking = wanted - self._free(self._store.root)
            self._evict(max(self._held(afresh=True) - lacking, 0))
            left = self._free(self._store.root)
            if left < wanted:
                return f"needs {_gb(size)}, but the volume of the store has {_gb(left)} free"
        return None

    def _held(self, *, afresh: bool = False) -> int:
        """Bytes in the store: measured now and then, in between what this process has added."""
        added = self._store.taken_in - self._added_before
        self._looks += 1
        if afresh or self._measured is None or self._looks % LOOKS == 0:
            self._added_before, added = self._store.taken_in, 0
            self._measured = self._store.size()
        return self._measured + added

    def _evict(self, budget: int) -> GcReport:
        report = self._store.gc(budget)
        self._measured, self._added_before = report.kept, self._store.taken_in
        if report.evicted:
            self._evicted(report)
        return report


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.2f} MB"
