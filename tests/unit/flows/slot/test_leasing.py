"""Heartbeats, by a state in memory that may be away or give the lease to somebody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from flows.slot.leases import LeaseRenewer
from flows.stop import Stop
from state.errors import StateError, StateUnavailable
from state.records import Lease
from state.state import State

LEASE = Lease(1, "m", (), 5, "me", 1)
LIMIT = 30.0


def eventually(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LIMIT
    while not check() and time.monotonic() < deadline:
        time.sleep(0.002)
    return check()


class Beats:
    """Answers to heartbeats, one after the other; the last one stays."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.all = threading.Event()
        self.activities: list[tuple[str | None, str | None]] = []
        self.away = 0
        """How many activities a database that is away does not take."""

    def set_activity(self, _held: Lease, cell: str | None, text: str | None) -> None:
        if self.away:
            self.away -= 1
            raise StateUnavailable("away")
        self.activities.append((cell, text))

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


def test_what_a_slot_is_doing_is_written_once_per_change_and_after_an_outage() -> None:
    beats = Beats(True)
    beats.away = 2
    with keeper(beats, Stop()) as keeping, keeping.renewing(LEASE) as held:
        for number in (1, 2):
            held.activity = ("m@t", f"calibrating {number}/2")
            assert eventually(lambda: len(beats.activities) == number)  # noqa: B023 - called here
        held.activity = None
        assert eventually(lambda: (None, None) in beats.activities)
    assert beats.activities == [
        ("m@t", "calibrating 1/2"),
        ("m@t", "calibrating 2/2"),
        (None, None),
    ]


def test_a_flood_of_progress_is_not_a_flood_of_writes() -> None:
    beats = Beats(True)
    renewer = LeaseRenewer(cast("State", cast("Any", beats)), Stop(), ttl=4 * LIMIT)
    with renewer as keeping, keeping.renewing(LEASE) as held:
        for number in range(100_000):
            held.activity = ("m@t", f"calibrating {number}/100000")
        assert eventually(lambda: len(beats.activities) > 0)
    assert len(beats.activities) < 10
