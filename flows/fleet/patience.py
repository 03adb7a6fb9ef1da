"""A state that is waited for: a database that restarts must not cost a slot its model.

What was under way when the connection broke may have been committed or not. Every call that waits
is therefore one that may be made twice; `record` looks whether its first try has arrived. (A lease
that arrived without our knowing is renewed by nobody and runs out.)
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from flows.sweep.stop import Stop
from matrix.status import Status
from state.errors import BadTransition, StateUnavailable
from state.ledger import State, open_state
from state.records import Facts, Lease, Outcome, StageRow

T = TypeVar("T")
LIMIT = 900.0
"""Seconds without the database after which a slot gives up."""

AT_ONCE = frozenset({"renew", "stage", "close"})
"""What does not wait: the keeper of leases has a rhythm of its own, the rest is not for here."""

_PAUSE = 1.0


class PatientState(State):
    """`State` whose calls wait through an outage, until a stop; see `_make_patient`."""

    def __init__(
        self,
        state: State,
        stop: Stop,
        limit: float = LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(state._db)
        self._stop = stop
        self._limit = limit
        self._clock = clock

    @property
    def at_once(self) -> State:
        """The same state for those who look again anyway."""
        return State(self._db)

    def _patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, self._stop, self._limit, self._clock)

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
        found = self.at_once.outcome(sweep_id, cell)
        return (
            found is not None
            and found.status is status
            and found.token == (held.token if held else found.token)
        )

    def outcomes(self, sweep_id: int, **filters: Any) -> Iterator[Outcome]:
        """Wait, then read all of them."""
        read = super().outcomes
        return iter(self._patiently(lambda: list(read(sweep_id, **filters))))


def _make_patient() -> None:
    """Every call of `State` that is not written out above waits and may be made twice."""
    for name in dir(State):
        plain = getattr(State, name)
        own = name in vars(PatientState) or name in AT_ONCE or name.startswith("_")
        if callable(plain) and not own:
            setattr(PatientState, name, _waiting(plain))


def _waiting(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(self: PatientState, *arguments: Any, **named: Any) -> Any:
        # An iterator that the first try has used up would be empty for the second.
        kept = [list(one) if isinstance(one, Iterator) else one for one in arguments]
        return self._patiently(lambda: plain(self, *kept, **named))

    return call


_make_patient()


def patiently(
    call: Callable[[], T],
    stop: Stop,
    limit: float = LIMIT,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Call again while the database is away, until a stop or for so long."""
    deadline = clock() + limit
    while True:
        try:
            return call()
        except StateUnavailable:
            if clock() > deadline or stop.wait(_PAUSE):
                raise


def open_patiently(where: str, stop: Stop) -> PatientState:
    """Open a state that may just be restarting."""
    return PatientState(patiently(lambda: open_state(where), stop), stop)
