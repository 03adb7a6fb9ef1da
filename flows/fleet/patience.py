"""A state that is waited for: a database that restarts must not cost a slot its model.

What was under way when the connection broke may have been committed or not. Every call here is
therefore one that may be made twice; `record` looks whether its first try has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from flows.stop import Stop
from matrix.status import Status
from state.errors import BadTransition, StateUnavailable
from state.ledger import State, open_state
from state.owner import Owner
from state.records import Event, Facts, Json, Kind, Lease, Outcome, Remaining, StageRow, SweepInfo

T = TypeVar("T")
LIMIT = 900.0
"""Seconds without the database after which a slot gives up."""

_PAUSE = 1.0


class PatientState(State):
    """`State` whose calls wait through an outage, until a stop."""

    def __init__(self, state: State, stop: Stop, limit: float = LIMIT) -> None:
        super().__init__(state._db)
        self._stop = stop
        self._limit = limit

    def _patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, self._stop, self._limit)

    def lease(
        self, sweep_id: int, owner: Owner, ttl: float, among: Collection[str] | None = None
    ) -> Lease | None:
        """Wait, then lease."""
        return self._patiently(lambda: super(PatientState, self).lease(sweep_id, owner, ttl, among))

    def release(self, held: Lease, *, done: bool) -> bool:
        """Wait, then release."""
        return self._patiently(lambda: super(PatientState, self).release(held, done=done))

    def remaining(self, sweep_id: int, among: Collection[str] | None = None) -> Remaining:
        """Wait, then count."""
        return self._patiently(lambda: super(PatientState, self).remaining(sweep_id, among))

    def record(
        self,
        held: Lease | None,
        sweep_id: int,
        cell: str,
        status: Status,
        facts: Facts = Facts(),  # noqa: B008 - frozen
        stages: Sequence[StageRow] = (),
    ) -> None:
        """Wait, then record; a second try may find that the first one has arrived."""
        tries: list[None] = []

        def call() -> None:
            tries.append(None)
            try:
                super(PatientState, self).record(held, sweep_id, cell, status, facts, stages)
            except BadTransition:
                if len(tries) == 1 or not self._arrived(held, sweep_id, cell, status):
                    raise

        self._patiently(call)

    def _arrived(self, held: Lease | None, sweep_id: int, cell: str, status: Status) -> bool:
        found = super().outcome(sweep_id, cell)
        return (
            found is not None
            and found.status is status
            and found.token == (held.token if held else found.token)
        )

    def outcomes(self, sweep_id: int, **filters: Any) -> Iterator[Outcome]:
        """Wait, then read all of them."""
        read = super().outcomes
        return iter(self._patiently(lambda: list(read(sweep_id, **filters))))

    def events(
        self,
        sweep_id: int,
        after_id: int = 0,
        limit: int = 1_000,
        *,
        cell: str | None = None,
        kind: Kind | None = None,
    ) -> list[Event]:
        """Wait, then read."""
        read = super().events
        return self._patiently(lambda: read(sweep_id, after_id, limit, cell=cell, kind=kind))

    def note(self, sweep_id: int, kind: Kind, data: Json | None = None) -> int:
        """Wait, then note."""
        write = super().note
        return self._patiently(lambda: write(sweep_id, kind, data))

    def sweeps(self) -> list[SweepInfo]:
        """Wait, then read."""
        return self._patiently(super().sweeps)

    def end(self, sweep_id: int, exit_code: int) -> None:
        """Wait, then end."""
        write = super().end
        self._patiently(lambda: write(sweep_id, exit_code))


def patiently(call: Callable[[], T], stop: Stop, limit: float = LIMIT) -> T:
    """Call again while the database is away, until a stop or for so long."""
    deadline = time.monotonic() + limit
    while True:
        try:
            return call()
        except StateUnavailable:
            if time.monotonic() > deadline or stop.wait(_PAUSE):
                raise


def open_patiently(where: str, stop: Stop) -> PatientState:
    """Open a state that may just be restarting."""
    return PatientState(patiently(lambda: open_state(where), stop), stop)
