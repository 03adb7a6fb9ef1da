"""Pauses that a feed asks for. They are announced: otherwise the program would seem to hang."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable

from feed.errors import FeedError, Unavailable

TOLD = 5.0
"""Shorter pauses (in seconds) are not announced."""
_LONGEST = 200

Say = Callable[[str], None]


def on_stderr(text: str) -> None:
    """Print one line to standard error."""
    print(f"modelmill: {text}", file=sys.stderr, flush=True)


def pause_after(error: FeedError, attempt: int, longest: float) -> float:
    """Seconds until the next attempt: those that the feed asks for, or growing ones at random."""
    growing = min(2.0 ** (attempt - 1), longest) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
    asked = error.retry_after if isinstance(error, Unavailable) else None
    return growing if asked is None else asked


class Pauses:
    """Announces each pause once, however many threads wait. Safe to use from several threads."""

    def __init__(self, say: Say = on_stderr, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._told_until = 0.0
        self._not_before = 0.0

    def tell(self, why: str, seconds: float) -> None:
        """Say why nothing happens, unless a pause that lasts as long was announced."""
        now = self._clock()
        with self._lock:
            if seconds < TOLD or now < self._told_until:
                return
            self._told_until = now + seconds
        reason = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
        self._say(f"{reason}; going on in {seconds:.0f} s")

    def hold(self, seconds: float) -> None:
        """Let `wait` pause for so many seconds from now on, unless it does so for longer."""
        with self._lock:
            self._not_before = max(self._not_before, self._clock() + seconds)

    def wait(self, why: str, sleep: Callable[[float], None]) -> None:
        """Wait until the pause ends, if there is one."""
        with self._lock:
            pause = self._not_before - self._clock()
        if pause > 0:
            self.tell(why, pause)
            sleep(pause)
