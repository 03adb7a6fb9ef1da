"""Limits of time that grow with the load of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil


def slowness() -> float:
    """How much longer than on an idle machine something may take now."""
    try:
        load = psutil.getloadavg()[0]
    except RuntimeError:  # a Windows without performance counters, as Wine is
        load = 4.0
    return max(1.0, load / (os.cpu_count() or 1))


def patient(seconds: float) -> float:
    """A limit that is far above what an idle machine needs, for the machine as it is now."""
    return seconds * slowness()


def eventually(check: Callable[[], bool], within: float = 15.0) -> bool:
    """Whether it comes true; the limit is a last resort, far above what it takes."""
    began = asked = time.monotonic()
    while not check():
        now = time.monotonic()
        if now - began > patient(within):
            return False
        # A check that takes long is made less often: what it waits for needs the processor.
        time.sleep(max(0.02, 3 * (now - asked)))
        asked = time.monotonic()
    return True
