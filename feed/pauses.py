"""Telling of pauses: a feed that lets us wait would look like a program that hangs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

TOLD = 5.0
"""Seconds from which on a pause is told."""
_LONGEST = 200

Say = Callable[[str], None]


def on_stderr(text: str) -> None:
    """One line for whoever watches."""
    print(f"modelmill: {text}", file=sys.stderr, flush=True)


class Pauses:
    """Tells of each pause once, however many threads make it. Safe to use from several threads."""

    def __init__(self, say: Say = on_stderr, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._told_until = 0.0

    def tell(self, why: str, seconds: float) -> None:
        """Say why nothing happens for so long, unless a pause is told already."""
        now = self._clock()
        with self._lock:
            if seconds < TOLD or now < self._told_until:
                return
            self._told_until = now + seconds
        reason = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
        self._say(f"{reason}; going on in {seconds:.0f} s")
