"""Slows down when the service asks for it, in successful replies as well."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Pace:
    """Delays the requests of a feed until the time that the service asked for."""

    def __init__(
        self,
        *,
        longest: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.longest = longest
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._not_before = 0.0

    def hold(self, seconds: float) -> None:
        """Pause for so many seconds, at most `longest`."""
        with self._lock:
            until = self._clock() + min(seconds, self.longest)
            self._not_before = max(self._not_before, until)

    def wait(self) -> None:
        """Wait until the pause ends, if there is one."""
        with self._lock:
            pause = self._not_before - self._clock()
        if pause > 0:
            self._sleep(pause)
