"""What a worker removes by itself: old stage results and logs, leftovers of killed runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flows.output.quantity import counted, show_size
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from workers.store import Store
from workers.store.folder import is_store

PERIOD = 6 * 3600.0
"""Seconds between two clean-ups."""


@dataclass(slots=True)
class Cleanup:
    """Removes old stage results, old logs and leftovers of killed runs from one home folder.

    A machine of a fleet builds unattended for months, so its disk would fill up. Results that
    running builds use stay, and so do packages that were kept for inspection (conflicts, failed
    verification).
    """

    settings: Settings
    _next: float = field(default_factory=time.monotonic)

    def if_due(self) -> str | None:
        """Clean up if the time has come; returns what was removed, if anything."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + PERIOD
        return self.clean(time.time() - self.settings.retention)

    def clean(self, since: float) -> str | None:
        """Remove what was not used since then, and what exceeds the disk budget."""
        work = Workspace(self.settings)
        work.tidy()
        removed = [*_results(work, self.settings.disk_budget, since), *_logs(work.logs, since)]
        return f"removed {' and '.join(removed)}" if removed else None


def _results(work: Workspace, budget: int | None, since: float) -> Iterator[str]:
    if not is_store(work.store):
        return
    with closing(Store(work.store)) as store:
        report = store.gc(budget or math.inf, since)
    if report.evicted:
        yield f"{counted(len(report.evicted), 'stage result')} ({show_size(report.freed)})"


def _logs(folder: Path, since: float) -> Iterator[str]:
    removed = 0
    for path in folder.rglob("*.log*"):
        with suppress(OSError):  # held open on Windows, or gone meanwhile
            if path.is_file() and path.stat().st_mtime < since:
                path.unlink()
                removed += 1
    if removed:
        yield counted(removed, "log")
