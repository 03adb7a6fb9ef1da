"""Cancels a sweep through the state, for every process that works on it, and notices it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from flows.output.activity import waiting_for
from flows.stop import Stop
from machine.background import Background
from matrix.errors import Exit, MillError
from state.errors import StateUnavailable
from state.records import Kind
from state.state import State

INTERVAL = 1.0
RELEASED = 20.0
"""Seconds that the slots of a cancelled sweep have to hand back their leases."""


class StoppedElsewhere(MillError):
    """Somebody stopped the sweep for all who work on it."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(str(data.get("why", "cancelled")))
        code = data.get("exit_code")
        self.exit_code = Exit(code) if code in set(Exit) else Exit.INTERRUPTED


def stop_for_all(state: State, sweep: int, error: MillError | None) -> None:
    """Stop every process that works on the sweep."""
    code = error.exit_code if error else Exit.INTERRUPTED
    data = {"why": str(error or "cancelled"), "exit_code": int(code)}
    state.note(sweep, Kind.INTERRUPTED, data)


def cancel_sweep(state: State, sweep: int) -> int:
    """Stop every process that works on a sweep; returns the number of cells left open.

    Its slots see it within a second or two, hand back and end; a resume plans everything again.
    """
    waiting_for("asking the processes that work on the sweep to stop")
    stop_for_all(state, sweep, None)
    deadline = time.monotonic() + RELEASED
    while time.monotonic() < deadline and any(not one.expired for one in state.leases(sweep)):
        time.sleep(0.2)
    cancelled = state.cancel_open(sweep)
    info = next(one for one in state.sweeps() if one.id == sweep)
    if info.ended_at is None:
        state.end(sweep, Exit.INTERRUPTED)
    return len(cancelled)


@dataclass
class CancellationWatch(Background):
    """Sets `stop` when somebody cancels the sweep while the block runs."""

    state: State
    """A state whose calls do not wait for the database."""
    sweep: int
    after: int
    """The event that begins the run; what was cancelled before it does not count."""
    stop: Stop

    def __post_init__(self) -> None:
        super().__init__("cancellation")

    def work(self) -> None:
        """Look now and then until the block is over."""
        while not self.over.wait(INTERVAL) and not self.stop:
            try:
                self.check()
            except StateUnavailable:
                continue  # slots wait for the database; a stop must not
            except MillError as error:  # the database was changed under us
                if not self.over.is_set():
                    self.stop.ask(error)

    def check(self) -> None:
        """Look once."""
        ended = next(self.state.events(self.sweep, self.after, kind=Kind.INTERRUPTED), None)
        if ended is not None:
            self.stop.ask(StoppedElsewhere(dict(ended.data or {})))
