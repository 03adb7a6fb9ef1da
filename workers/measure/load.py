"""How busy other processes kept the machine while something was measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

BUSY = 0.1
"""A share of the processors that a user is warned of."""
SHORTEST = 0.5
"""Seconds; the system counts in steps of a hundredth, so less tells nothing."""


@dataclass(slots=True)
class Load:
    """Summed over the windows in which something was measured."""

    wall: float = 0.0
    busy: float = 0.0
    own: float = 0.0
    """Seconds of the processors that the measured processes report."""

    @contextmanager
    def window(self) -> Iterator[None]:
        """Watch what happens in the block."""
        began, busy, own = time.monotonic(), _busy(), time.process_time()
        yield
        self.wall += time.monotonic() - began
        self.busy += _busy() - busy
        self.own += time.process_time() - own

    @property
    def others(self) -> float:
        """The share of the processors that other processes used."""
        if self.wall < SHORTEST:
            return 0.0
        return max(0.0, (self.busy - self.own) / (self.wall * (psutil.cpu_count() or 1)))

    def warnings(self) -> list[str]:
        """What a user should know of it."""
        if self.others <= BUSY:
            return []
        return [f"other processes used {self.others:.0%} of the processors meanwhile"]


def _busy() -> float:
    """Seconds that all processors have worked since the machine was started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))
