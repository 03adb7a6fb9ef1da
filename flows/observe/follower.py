"""Reading the event table of a running sweep and handing it to a view, from one thread."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Self

from flows.fleet.run import FLEET
from flows.observe.tally import Tally
from flows.observe.views import View
from flows.sweep.recorded_plan import PLAN
from state.ledger import State
from state.records import Event

INTERVAL = 0.2
_LOOK_AROUND = 1.0
"""Seconds between two looks at what the slots are doing; the events are read more often."""
_PAGE = 1000
_WIDE = {PLAN, FLEET}
"""Keys of events that are as long as the sweep is wide."""


def trimmed(event: Event) -> Event:
    """An event without what nobody wants to see in a line."""
    wide = event.data is not None and not _WIDE.isdisjoint(event.data)
    return replace(event, data=None) if wide else event


class Follower:
    """Shows a sweep while the block runs; local and fleet mode read the same table."""

    def __init__(
        self, state: State, sweep_id: int, view: View, tally: Tally, after: int = 0
    ) -> None:
        self._state = state
        self._sweep_id = sweep_id
        self._view = view
        self.tally = tally
        self.seen = after
        """The last event that was shown."""
        self._looked = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed.wait(INTERVAL):
                self._read()
            self._read()
        finally:
            self._view.close()

    def _read(self) -> None:
        more = True
        while more:
            page = self._state.events(self._sweep_id, after_id=self.seen, limit=_PAGE)
            for event in page:
                self.seen = event.id
                self.tally.apply(event)
                self._view.event(trimmed(event), self.tally)
            more = len(page) == _PAGE
        if time.monotonic() - self._looked >= _LOOK_AROUND:
            self._looked = time.monotonic()
            self.tally.look_at(self._state.leases(self._sweep_id))
        self._view.tick(self.tally)
