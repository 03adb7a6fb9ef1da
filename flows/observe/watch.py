"""Following a sweep from outside: another terminal, another machine, local and fleet alike.

Everything comes from the state, and nothing is written to it. The counts come from the outcomes,
who is at work from the leases, what happens next from the events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from flows.observe.follower import trimmed
from flows.observe.tally import BUSY, Tally
from flows.observe.views import View
from flows.observe.waiting import one_line, waiting
from flows.sweep.recorded_plan import foretold
from flows.sweep.stop import Stop
from state.errors import StateUnavailable
from state.ledger import State
from state.records import Event, Kind, SweepInfo

_INTERVAL = 0.5
_LOOK_AROUND = 2.0
"""Seconds between two looks at the leases; the events are read more often."""
_AWAY = 5.0
_PAGE = 1000
NOBODY = "nobody is at work on it; if that lasts: modelmill resume"


class Watch:
    """Shows a sweep until it ends, or until the one who looks has seen enough."""

    def __init__(self, state: State, info: SweepInfo, view: View) -> None:
        self._state = state
        self._info = info
        self._view = view
        self._after = 0
        self._looked = 0.0
        self.tally = Tally({})

    def follow(self, stop: Stop) -> None:
        """Returns when no run of the sweep is left, or on a stop."""
        started = False
        try:
            while not stop:
                pause = _INTERVAL
                try:
                    if not started:
                        self._begin()
                        started = True
                    if self.step():
                        return
                except StateUnavailable as error:
                    # A restart of the database is no reason to look away.
                    self.tally.notice, pause = f"{error.message}; trying again", _AWAY
                    self._view.tick(self.tally)
                stop.wait(pause)
        finally:
            self._view.close()

    def step(self) -> bool:
        """Show what is new; True when the sweep is over."""
        for event in self._news():
            self.tally.apply(event)
            self._view.event(trimmed(event), self.tally)
        if time.monotonic() - self._looked >= _LOOK_AROUND:
            self._look_around()
        self._view.tick(self.tally)
        return self._over()

    def _begin(self) -> None:
        # In this order: what happens in between is told by the events, again at worst.
        self._after = self._state.last_event(self._info.id)
        self._count()

    def _count(self) -> None:
        self.tally = Tally(
            self._state.statuses(self._info.id),
            publish=self._info.publish,
            known=foretold(self._state, self._info.id),
        )
        self.tally.waiting = one_line(waiting(self._state, self._info.id).unserved)
        self._look_around()

    def _news(self) -> Iterator[Event]:
        while page := self._state.events(self._info.id, self._after, _PAGE):
            for event in page:
                self._after = event.id
                if event.kind is Kind.BEGUN:
                    self._count()  # a run may bring more cells
                yield event

    def _look_around(self) -> None:
        """Who holds what, and with what at hand: the events only tell of what was begun since."""
        self._looked = time.monotonic()
        holders = [one for one in self._state.leases(self._info.id) if not one.expired]
        self.tally.look_at(holders)
        self.tally.slots = max(1, len({one.owner for one in holders}))
        at_work = {one.owner for one in holders}
        self.tally.busy = {owner: at for owner, at in self.tally.busy.items() if owner in at_work}
        for holder in holders:
            if holder.owner in self.tally.busy:
                continue
            for one in self._state.outcomes(self._info.id, statuses=BUSY, model=holder.model):
                since = one.started_at or holder.taken_at
                self.tally.busy[holder.owner] = (one.cell, one.status, since)
        self.tally.notice = "" if holders or not self._left() else NOBODY

    def _left(self) -> int:
        return self.tally.total - self.tally.ended

    def _over(self) -> bool:
        """Whether the last run has said that it ended; of two at once the other may go on."""
        info = self._state.find_sweep(self._info.stamp, self._info.feed)
        if info is None or info.exit_code is None:
            return False
        if any(not one.expired for one in self._state.leases(info.id)):
            return False
        for event in self._news():
            self.tally.apply(event)
            self._view.event(trimmed(event), self.tally)
        return True
