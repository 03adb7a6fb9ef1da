"""Asking, beside the work, whether it is still wanted: a sweep may be cancelled, a worker drain."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

from flows.fleet.orders import Orders
from flows.sweep.stop import Stop
from matrix.errors import Exit, MillError
from state.errors import StateUnavailable
from state.ledger import State
from state.records import Kind

INTERVAL = 1.0
TURN = 600.0
"""Seconds after which a slot gives way, if another sweep waits for its place."""


class StoppedElsewhere(MillError):
    """Somebody ended the sweep for all who work on it."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(str(data.get("why", "cancelled")))
        code = data.get("exit_code")
        self.exit_code = Exit(code) if code in set(Exit) else Exit.INTERRUPTED


def end_for_all(state: State, sweep: int, error: MillError | None) -> None:
    """Make everybody who works on the sweep stop."""
    code = error.exit_code if error else Exit.INTERRUPTED
    data = {"why": str(error or "cancelled"), "exit_code": int(code)}
    state.note(sweep, Kind.INTERRUPTED, data)


@dataclass
class Watch:
    """Looks every second; sets `stop` or `closing`."""

    state: State
    """One that does not wait for its database."""
    sweep: int
    run: int
    stop: Stop
    orders: Orders | None = None
    closing: threading.Event = field(default_factory=threading.Event)
    turn: float = TURN
    _over: threading.Event = field(default_factory=threading.Event)
    _began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(INTERVAL) and not self.stop:
            try:
                self.look()
            except StateUnavailable:
                continue  # whoever works waits for the database; orders are not to wait with it
            except MillError as error:  # the database was changed under us
                if not self._over.is_set():
                    self.stop.ask(error)

    def look(self) -> None:
        """Once."""
        if self.orders is not None:
            if self.orders.stopping:
                self.stop.ask()
            elif self.orders.draining:
                self.closing.set()
        ended = self.state.events(self.sweep, self.run, 1, kind=Kind.INTERRUPTED)
        if ended:
            self.stop.ask(StoppedElsewhere(dict(ended[0].data or {})))
        if time.monotonic() - self._began > self.turn and self._others_wait():
            self.closing.set()

    def _others_wait(self) -> bool:
        return any(
            one.ended_at is None and one.id != self.sweep and self.state.remaining(one.id).todo
            for one in self.state.sweeps()
        )
