"""Counts the bytes of a transfer, reports them and keeps its deadline."""

from __future__ import annotations

import time

from feed.errors import TimeLimit
from feed.interface import Progress


class Meter:
    """Counts bytes, reports progress, and stops the transfer at its deadline."""

    def __init__(
        self, total: int, progress: Progress | None = None, timeout: float | None = None
    ) -> None:
        self._total = total
        self._done = 0
        self._progress = progress
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def moved(self, count: int) -> None:
        """Count bytes as done."""
        self._done += count
        self.check()
        if self._progress:
            self._progress(self._done, self._total)

    def again(self, count: int) -> None:
        """Count bytes as not done: they must be copied again."""
        self._done -= count

    def left(self) -> float | None:
        """Seconds until the deadline, if there is one."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    def check(self) -> None:
        """Raise `TimeLimit` after the deadline."""
        left = self.left()
        if left is not None and left <= 0:
            raise TimeLimit(f"not done within {self._timeout:g} s; nothing was published")
