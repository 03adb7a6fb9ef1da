"""Waiting for a database that is away, by a clock that costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from matrix.status import Status
from state import state as opened
from state.database import Database, Patience
from state.errors import BadTransition, LeaseLost, StateError, StateUnavailable
from state.records import Facts, Kind, Seen
from state.state import State, open_state
from tests.states.samples import ALIVE, FOREIGN, TREE, begin, cell, rows, take

AWAY = StateUnavailable("the database is away")


class Clock:
    """Time passes only where somebody waits."""

    def __init__(self, until: float = 1e9) -> None:
        self.now = 0.0
        self.until = until

    def time(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self.until

    def patience(self) -> Patience:
        return Patience(self.wait, 60.0, self.time)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patient(state: State, clock: Clock) -> State:
    return state.patient(clock.patience())


class Outage:
    """A call that fails so often, before or after it has done its work."""

    def __init__(self, times: int, call: Callable[..., Any], *, late: bool = False) -> None:
        self.left, self.call, self.late = times, call, late

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left >= 0 and not self.late:
            raise AWAY
        result = self.call(*arguments, **named)
        if self.left >= 0:
            raise AWAY
        return result


def flaky(monkeypatch: pytest.MonkeyPatch, name: str, times: int, *, late: bool = False) -> None:
    """Let `read` or `write` of every database fail so often, `late`: after the commit."""
    plain = getattr(Database, name)
    left = [times]

    @contextmanager
    def call(self: Database) -> Iterator[Connection]:
        left[0] -= 1
        if left[0] >= 0 and not late:
            raise AWAY
        with plain(self) as connection:
            yield connection
        if left[0] >= 0:
            raise AWAY

    monkeypatch.setattr(Database, name, call)


def test_it_waits_and_then_answers(clock: Clock) -> None:
    assert clock.patience().through(Outage(30, lambda: "there")) == "there"
    assert clock.now == 30.0


def test_it_gives_up_at_its_limit(clock: Clock) -> None:
    with pytest.raises(StateUnavailable):
        clock.patience().through(Outage(10**6, str))
    assert clock.now == 61.0


def test_a_stop_is_not_waited_through() -> None:
    clock = Clock(until=5.0)
    with pytest.raises(StateUnavailable):
        clock.patience().through(Outage(10**6, str))
    assert clock.now == 5.0


def test_what_will_not_pass_is_said_at_once(clock: Clock) -> None:
    def refuse() -> None:
        raise StateError("no such database")

    with pytest.raises(StateError):
        clock.patience().through(refuse)
    assert clock.now == 0.0


@pytest.mark.parametrize(
    "read",
    [
        State.remaining,
        State.demand,
        State.statuses,
        State.leases,
        State.sweep,
        lambda state, _sweep: state.find_sweep(),
        lambda state, sweep: list(state.outcomes(sweep)),
        lambda state, sweep: list(state.events(sweep)),
        lambda state, _sweep: state.unit_costs(),
    ],
)
def test_every_reading_waits(
    read: Callable[[State, int], Any],
    patient: State,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweep = begin(patient).id
    expected = read(patient.at_once, sweep)
    flaky(monkeypatch, "read", 3)
    assert read(patient, sweep) == expected
    assert clock.now == 3.0
    flaky(monkeypatch, "read", 1)
    with pytest.raises(StateUnavailable):
        read(patient.at_once, sweep)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        lambda state, sweep: state.seed(sweep, (Seen(one, TREE, "v") for one in [cell()])),
        lambda state, sweep: state.unseed(sweep, (one for one in [cell()]), 0.0),
        lambda state, sweep: state.note(sweep, Kind.NOTICE),
        lambda state, sweep: state.retry(sweep),
        lambda state, sweep: state.cancel_open(sweep),
        lambda state, sweep: state.end(sweep, 0),
        lambda state, _sweep: begin(state),
        lambda state, sweep: state.record(None, sweep, cell(), Status.SKIPPED),
        lambda state, sweep: state.lease(sweep, ALIVE, 60.0),
    ],
)
def test_every_writing_waits(
    write: Callable[[State, int], Any],
    late: bool,
    patient: State,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweep = begin(patient).id
    flaky(monkeypatch, "write", 2, late=late)
    write(patient, sweep)
    assert clock.now == 2.0


def test_giving_back_waits(patient: State, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = begin(patient)
    lease = take(patient, sweep)
    flaky(monkeypatch, "write", 2)
    assert patient.release(lease, done=True)
    assert clock.now == 2.0


def test_an_iterator_is_there_for_the_second_try_too(
    patient: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = begin(patient).id
    listed = (Seen(row.cell, TREE, row.version) for row in rows())
    flaky(monkeypatch, "write", 1)
    assert patient.seed(sweep, listed).new == 4
    assert set(patient.statuses(sweep).values()) == {Status.PUBLISHED}


def test_a_record_that_had_arrived_is_not_refused(
    patient: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server went away between the commit and its answer."""
    sweep = begin(patient)
    lease = take(patient, sweep)
    patient.record(lease, sweep.id, cell(), Status.BUILDING)
    flaky(monkeypatch, "write", 1, late=True)
    patient.record(lease, sweep.id, cell(), Status.BUILD_FAILED, Facts(message="no"))
    events = patient.events(sweep.id, kind=Kind.STATUS)
    assert [one.status for one in events] == ["building", "build_failed"]


def test_a_record_that_is_wrong_stays_wrong(
    patient: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = begin(patient)
    lease = take(patient, sweep)
    patient.record(lease, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
    flaky(monkeypatch, "write", 1)
    with pytest.raises(BadTransition):
        patient.record(lease, sweep.id, cell(), Status.BUILD_FAILED)


def test_a_late_record_is_refused_after_an_outage_too(
    patient: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = begin(patient)
    late = take(patient, sweep, FOREIGN, 0.0)
    taken = patient.lease(sweep.id, ALIVE, 60.0, {late.model})
    assert taken
    assert taken.token > late.token
    flaky(monkeypatch, "write", 2)
    with pytest.raises(LeaseLost):
        patient.record(late, sweep.id, cell(), Status.BUILDING)
    assert not patient.renew(late, 60.0)
    assert not patient.release(late, done=True)


def test_a_heartbeat_does_not_wait(
    patient: State, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = take(patient, begin(patient))
    flaky(monkeypatch, "write", 1)
    with pytest.raises(StateUnavailable):
        patient.renew(lease, 60.0)
    assert clock.now == 0.0


def test_opening_waits_for_a_server_that_just_restarts(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "_open", Outage(3, opened._open))
    with open_state(tmp_path / "state.db", patience=clock.patience()) as state:
        assert state.sweeps() == []
    assert clock.now == 3.0


def test_several_threads_wait_each_for_itself(patient: State) -> None:
    sweep = begin(patient).id
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(patient.remaining(sweep).open))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 4
