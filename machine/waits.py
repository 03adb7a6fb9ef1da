"""Waits for other processes: reported after a moment, given up when nothing changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from matrix.errors import Exit, MillError

TELL_AFTER = 2.0
"""Seconds; a longer wait is reported."""

Told = Callable[[str], None]
"""Called with what is waited for."""


def untold(_text: str) -> None:
    """For a wait that nobody watches."""


class WaitedTooLong(MillError):
    """Nothing has moved for as long as the wait may last."""

    exit_code = Exit.UNUSABLE


class Cancelled(MillError):
    """Somebody asked to stop; nothing is wrong."""

    exit_code = Exit.INTERRUPTED


@dataclass(frozen=True, slots=True)
class WaitRules:
    """How long a wait may last, who can end it, and who is told of it."""

    limit: float = float("inf")
    """Seconds without a sign of life of those who are waited for."""
    cancel: threading.Event | None = None
    told: Told = untold


WITHOUT_LIMIT = WaitRules()


class Wait:
    """One wait, which ends when what it waits for is there or nothing moves for too long."""

    def __init__(
        self, rules: WaitRules = WITHOUT_LIMIT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rules = rules
        self._told: Told | None = rules.told
        self._clock = clock
        self._began = self._moved = clock()
        self._signs: object = None

    def is_over(self, signs: object, what: str) -> bool:
        """Whether the signs of life have been the same for `limit` seconds. Asked at every look."""
        now = self._clock()
        if signs != self._signs:
            self._signs, self._moved = signs, now
        if self._told is not None and now - self._began > TELL_AFTER:
            self._told(f"waiting for {what}")
            self._told = None
        return now - self._moved > self.rules.limit
