"""Who leads a sweep of a fleet, known from the state alone.

A parent says at every heartbeat that it lives. When none has said so for long, whoever works on the
sweep or follows it asks for another one; of two, the one that begins last leads. What Prefect says
of a run proves nothing: after an outage, or on a busy machine, it takes living processes for dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from flows.observe.unserved import BEAT, SILENCE, last_beat
from machine.background import Background
from state.errors import StateError
from state.reading import StateReader
from state.records import Kind, SweepInfo
from state.state import State

NIGHTLY = "nightly"
"""Key of the settings of a sweep that a schedule began: the deployment."""
_BEATS = 4
_LEAST = 60.0
"""A busy machine may be silent for that long."""
_AWAY = 30.0
"""Seconds between two looks after which the state was away, and everybody silent."""


class Heartbeat(Background):
    """Says that a parent lives while the block runs."""

    def __init__(self, state: State, sweep: int, seconds: float) -> None:
        super().__init__("parent-heartbeat")
        self._state = state.at_once
        self._sweep = sweep
        self._seconds = seconds

    def work(self) -> None:
        """Say so until the block is over."""
        notice = {BEAT: self._seconds, SILENCE: max(_LEAST, _BEATS * self._seconds)}
        while not self.over.is_set():
            with suppress(StateError):
                self._state.note(self._sweep, Kind.NOTICE, notice)
            self.over.wait(self._seconds)


@dataclass
class ParentWatch:
    """Asks for another parent when the one of a run has not begun in time, or is silent."""

    state: StateReader
    sweep: int
    run: int
    """The event of the run."""
    start_limit: float
    """Seconds that a parent has to begin."""
    ask: Callable[[str], bool]
    """Asks for one, with a name for the request; False: nobody could be asked."""
    _limit: float = field(init=False)
    _seen: int = field(init=False)
    _since: float = field(init=False)
    _looked: float = field(init=False)
    _asked: int = 0

    def __post_init__(self) -> None:
        self._seen, self._limit = self.run, self.start_limit
        self._since = self._looked = time.monotonic()

    def look(self) -> None:
        """Look now; call it every few seconds."""
        beat = last_beat(self.state.events(self.sweep, self._seen, kind=Kind.NOTICE))
        now = time.monotonic()
        if beat:
            self._seen, self._since, self._asked = beat[0].id, now, 0
            self._limit = beat[1]
        elif now - self._looked > _AWAY:
            self._since = now
        self._looked = now
        if now - self._since > self._limit and self.ask(f"{self._seen}-{self._asked + 1}"):
            self._asked += 1
            self._since, self._limit = now, self.start_limit


def earlier_night(state: StateReader, nightly: str, due: float) -> SweepInfo | None:
    """A sweep of the same schedule that was worked on when this one was due, or is now.

    Not whether one is now alone: this one may begin late, because its worker led that one.
    """
    for info in state.sweeps():
        if info.settings.get(NIGHTLY) != nightly:
            continue
        if info.ended_at is not None and info.ended_at > due:
            return info
        if info.ended_at is None and _is_alive(state, info):
            return info
    return None


def _is_alive(state: StateReader, info: SweepInfo) -> bool:
    if any(not one.expired for one in state.leases(info.id)):
        return True
    beat = last_beat(state.events(info.id, kind=Kind.NOTICE))
    return beat is not None and state.now() - beat[0].at < beat[1]
