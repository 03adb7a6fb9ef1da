"""Following a sweep by its events: beside the run itself, or from another terminal or machine.

Both hand every event to a view and write nothing. A `Follower` shows the run of its own process; a
`StatusWatch` (`modelmill status --watch`) also has to find out who is at work, and when it is over.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from flows.observe.progress import BUSY, SweepProgress, held_since
from flows.observe.unserved import UNSERVED, one_line, unserved_of
from flows.observe.views import View
from flows.plan.recorded import FLEET, PLAN, recorded_estimates
from flows.stop import Stop
from machine.background import Background
from matrix.globs import matches
from matrix.model import is_export
from state.errors import StateUnavailable
from state.reading import StateReader
from state.records import Event, Kind, SweepInfo

INTERVAL = 0.2
_WIDE = {PLAN, FLEET}
"""Keys of events that grow with the sweep."""
_WATCH_INTERVAL = 0.5
_OWN_LEASES_INTERVAL, _LEASES_INTERVAL = 1.0, 2.0
"""Seconds between two readings of the leases, which tell what the slots are doing; the events are
read more often."""
_OUTAGE_PAUSE = 5.0
_SILENCE = 900.0
"""Seconds without an event after which a run that has only its index left is not waited for."""
ENDING = "all cells are done, but the run has not ended yet"
NOBODY = "no process is working on it; if that lasts: modelmill resume"
"""With the stamp and flags of the sweep."""


class Follower(Background):
    """Shows a sweep from a thread of its own while the block runs."""

    def __init__(
        self, state: StateReader, sweep_id: int, view: View, progress: SweepProgress, after: int = 0
    ) -> None:
        super().__init__("follower")
        self._state = state
        self._sweep_id = sweep_id
        self._view = view
        self.progress = progress
        self.seen = after
        """The last event that was shown."""
        self._looked = 0.0
        self._changed = time.monotonic()

    def work(self) -> None:
        """Show what is new until the block is over."""
        try:
            while not self.over.wait(INTERVAL):
                self._read(_OWN_LEASES_INTERVAL)
            self._read(_OWN_LEASES_INTERVAL)
        finally:
            self._view.close()

    def _read(self, interval: float) -> None:
        """Show what is new; the leases are read once in an interval."""
        self._show_news()
        if time.monotonic() - self._looked >= interval:
            self.read_leases()
        self._view.tick(self.progress)

    def _show_news(self) -> None:
        for event in self._state.events(self._sweep_id, self.seen):
            self.seen, self._changed = event.id, time.monotonic()
            self._begun(event)
            if event.cell is None or self.concerns(event.cell):
                self.progress.apply(event)
                self._show(event)

    def concerns(self, cell: str) -> bool:  # noqa: ARG002 - for those who look on
        """Whether a cell is among those that are shown."""
        return True

    def _show(self, event: Event) -> None:
        if not _WIDE.isdisjoint(event.data or ()):  # no line shows it
            event = replace(event, data=None)
        self._view.event(event, self.progress)

    def _begun(self, event: Event) -> None:
        """For those who look on: another run may have begun."""

    def read_leases(self) -> None:
        """Find out what those at work say they are doing."""
        self._looked = time.monotonic()
        self.progress.look_at(self._state.leases(self._sweep_id))


class StatusWatch(Follower):
    """Shows a sweep from outside until it ends or the user stops looking.

    Everything comes from the state: counts from the outcomes, who is at work from the leases, what
    happens next from the events. `only`: counts and shows only the cells that match these globs;
    `failed`: shows no events but failures.
    """

    def __init__(
        self,
        state: StateReader,
        info: SweepInfo,
        view: View,
        only: Collection[str] = (),
        *,
        failed: bool = False,
    ) -> None:
        super().__init__(state, info.id, view, SweepProgress({}))
        self._info = info
        self._only = only
        self._failed = failed
        self._flags = ""

    def concerns(self, cell: str) -> bool:
        return not self._only or matches(cell, self._only)

    def _show(self, event: Event) -> None:
        if not self._failed or (event.status is not None and event.status.failed):
            super()._show(event)

    def follow(self, stop: Stop) -> None:
        """Return when no run of the sweep is left, or on a stop."""
        started = False
        try:
            while not stop:
                pause = _WATCH_INTERVAL
                try:
                    if not started:
                        self.begin()
                        started = True
                    if self.step():
                        return
                except StateUnavailable as error:  # a database may restart meanwhile
                    self.progress.notice, pause = f"{error.message}; trying again", _OUTAGE_PAUSE
                    self._view.tick(self.progress)
                stop.wait(pause)
        finally:
            self._view.close()

    def step(self) -> bool:
        """Show what is new; True when the sweep is over."""
        self._read(_LEASES_INTERVAL)
        return self._over()

    def begin(self) -> None:
        # In this order, an event in between is counted twice at worst, never missed.
        self.seen = self._state.last_event(self._info.id)
        self._count()

    def _count(self) -> None:
        state, info = self._state, self._info
        known, every = recorded_estimates(state, info.id), state.statuses(info.id)
        statuses = {cell: status for cell, status in every.items() if self.concerns(cell)}
        self.progress = SweepProgress(statuses, publish=info.publish, known=known)
        why = unserved_of(state, info.id)
        self.progress.noticed[UNSERVED] = one_line(why.groups)
        self._flags = " --fleet" if why.fleet else ""
        self.read_leases()

    def _begun(self, event: Event) -> None:
        if event.kind is Kind.BEGUN:
            self._count()  # a run may bring more cells

    def read_leases(self) -> None:
        """Find out who is at work on what; events report only what has begun since."""
        self._looked = time.monotonic()
        holders = [one for one in self._state.leases(self._info.id) if not one.expired]
        self.progress.look_at(one for one in holders if not one.cell or self.concerns(one.cell))
        at_work = {one.owner for one in holders}
        self.progress.slots = max(1, len(at_work))
        for owner in self.progress.busy.keys() - at_work:
            del self.progress.busy[owner]
        for holder in holders:
            if holder.owner in self.progress.busy:
                continue
            for one in self._state.outcomes(self._info.id, statuses=BUSY, model=holder.model):
                if one.needs == holder.needs and self.concerns(one.cell):
                    since = held_since(holder, one.started_at)
                    self.progress.busy[holder.owner] = (one.cell, one.status, since)
        idle = not holders and self.progress.total != self.progress.ended
        self.progress.notice = f"{NOBODY} {self._info.stamp}{self._flags}" if idle else ""

    def _over(self) -> bool:
        """Whether no run is left; of two runs at once the other may still be at work."""
        state, sweep = self._state, self._info.id
        if any(not one.expired for one in state.leases(sweep)):
            return False
        if state.sweep(sweep).exit_code is None and not self._given_up():
            return False
        self._show_news()
        return True

    def _given_up(self) -> bool:
        """Whether nobody will end the last run: it died here, or leaves the index for too long.

        A fleet starts another parent when one dies, and of another machine's process nobody knows
        whether it lives.
        """
        if self._state.is_abandoned(self._info.id):
            return not unserved_of(self._state, self._info.id).fleet
        if self.progress.total != self.progress.ended:
            return False
        if self._only:  # what is not shown may still be open
            whole = self._state.statuses(self._info.id).items()
            if not all(is_export(cell) or self.progress.final(status) for cell, status in whole):
                return False
        self.progress.notice = ENDING
        return time.monotonic() - self._changed > _SILENCE
