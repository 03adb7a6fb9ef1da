"""A test-only feed plug-in, `flaky:FOLDER`: a directory feed with the faults in FOLDER.json.

    {"publish": [null, "lost"], "find": ["down"]}   per method, what its next calls do
    {"hang": "versions"}                            the first call of that method never returns

Every call is written to FOLDER.calls. Needs the repository on the path, like the tests themselves.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from feed.directory import DirectoryFeed
from tests.fakes.feed import Fault, FlakyFeed


class JournalFeed(FlakyFeed):
    """Tells which methods were called."""

    def __init__(self, folder: Path) -> None:
        super().__init__(DirectoryFeed(folder))
        self._journal = folder.with_suffix(".calls")

    def _next(self, method: str) -> Fault | None:
        with self._journal.open("a") as journal:
            journal.write(f"{method}\n")
        return super()._next(method)


def open_flaky(rest: str) -> JournalFeed:
    """The factory behind the entry point."""
    folder = Path(rest)
    feed = JournalFeed(folder)
    told = folder.with_suffix(".json")
    for method, faults in (json.loads(told.read_bytes()) if told.exists() else {}).items():
        if method == "hang":
            feed.before[faults] = lambda: time.sleep(3600)
        else:
            feed.plan(method, *(fault and Fault(fault) for fault in faults))
    return feed
