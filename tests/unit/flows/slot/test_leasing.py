"""Heartbeats, by a state in memory that may be away or give the lease to somebody else."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from flows.slot.leases import LeaseRenewer
from flows.sweep.stop import Stop
from state.errors import StateError, StateUnavailable
from state.ledger import State
from state.records import Lease

LEASE = Lease(1, "m", 5, "me", 1)
LIMIT = 30.0


class Beats:
    """Answers to heartbeats, one after the other; the last one stays."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.all = threading.Event()

    def renew(self, _held: Lease, _ttl: float) -> bool:
        answer = self.answers[0]
        if len(self.answers) > 1:
            self.answers.pop(0)
        else:
            self.all.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def keeper(beats: Beats, stop: Stop) -> LeaseRenewer:
    return LeaseRenewer(cast("State", cast("Any", beats)), stop, ttl=0.004)


def test_a_lease_of_somebody_else_cancels_the_work() -> None:
    with keeper(Beats(True, True, False), Stop()) as keeping, keeping.renewing(LEASE) as held:
        assert held.gone.wait(LIMIT)


@pytest.mark.parametrize(
    "error",
    [StateUnavailable("away"), StateError("shutting down"), KeyError("what a driver raises")],
)
def test_a_database_that_is_away_cancels_nothing(error: Exception) -> None:
    """Not even one that answers strangely while it stops: the next heartbeat finds out."""
    beats = Beats(error, error, True)
    with keeper(beats, Stop()) as keeping, keeping.renewing(LEASE) as held:
        assert beats.all.wait(LIMIT)
        assert not held.gone.is_set()


def test_after_an_outage_a_lost_lease_is_noticed() -> None:
    beats = Beats(StateUnavailable("away"), False)
    with keeper(beats, Stop()) as keeping, keeping.renewing(LEASE) as held:
        assert held.gone.wait(LIMIT)


def test_a_stop_cancels_the_work_at_once() -> None:
    stop = Stop()
    with keeper(Beats(True), stop) as keeping, keeping.renewing(LEASE) as held:
        stop.ask()
        assert held.gone.is_set()
