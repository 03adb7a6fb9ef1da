"""The memory budget: a stage starts when what it is expected to take is free, in turn.

An estimate is no ceiling (that is the host's): a stage that is expected to need more than there is
runs alone. Those that wait go in the order in which they came, so that a large one is not passed
by small ones for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from workers.errors import Cancelled

SHARE = 0.9
"""Of the machine's memory; the rest is for the system and for this process."""
POLL = 0.2
"""Seconds between two looks at cancel while waiting."""


class MemoryBudget:
    """How much the stages that run at once may take; shared by all slots of a process."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit or int(psutil.virtual_memory().total * SHARE)
        self._reserved = 0
        self._running = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def reserved(self) -> int:
        """Bytes that running stages are expected to take."""
        return self._reserved

    @contextmanager
    def reserve(self, size: int, cancel: threading.Event | None = None) -> Iterator[None]:
        """Wait for `size` bytes, and hold them for as long as a stage runs."""
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or not self._fits(size):
                    if cancel is not None and cancel.is_set():
                        raise Cancelled("cancelled while waiting for memory")
                    self._changed.wait(POLL)
                self._reserved += size
                self._running += 1
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= size
                self._running -= 1
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._running or self._reserved + size <= self.limit
