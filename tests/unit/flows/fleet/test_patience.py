"""Waiting for a database, by a clock that costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.fleet import patience
from flows.fleet.patience import AT_ONCE, PatientState, patiently
from flows.sweep.stop import Stop
from matrix.status import Status
from state.errors import BadTransition, LeaseLost, StateError, StateUnavailable
from state.ledger import State, open_state
from state.records import Facts, Kind, Owner, Seen
from tests.fleets.runs import begun

AWAY = StateUnavailable("the database is away")


class Clock(Stop):
    """Time passes only where somebody waits."""

    def __init__(self, until: float = 1e9) -> None:
        super().__init__()
        self.now = 0.0
        self.until = until

    def time(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if self.now >= self.until:
            self.ask()
        return bool(self)


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


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_it_waits_and_then_answers(clock: Clock) -> None:
    assert patiently(Outage(30, lambda: "there"), clock, 60.0, clock.time) == "there"
    assert clock.now == 30.0


def test_it_gives_up_at_its_limit(clock: Clock) -> None:
    with pytest.raises(StateUnavailable):
        patiently(Outage(10**6, str), clock, 60.0, clock.time)
    assert clock.now == 61.0


def test_a_stop_is_not_waited_through() -> None:
    clock = Clock(until=5.0)
    with pytest.raises(StateUnavailable):
        patiently(Outage(10**6, str), clock, 60.0, clock.time)
    assert clock.now == 5.0


def test_what_will_not_pass_is_said_at_once(clock: Clock) -> None:
    def refuse() -> None:
        raise StateError("no such database")

    with pytest.raises(StateError):
        patiently(refuse, clock, 60.0, clock.time)
    assert clock.now == 0.0


def test_every_call_of_a_state_waits_but_those_that_may_not() -> None:
    public = {name for name in dir(State) if not name.startswith("_")}
    calls = {name for name in public if callable(getattr(State, name))}
    patient = {name for name in calls if getattr(PatientState, name) is not getattr(State, name)}
    assert calls - patient == AT_ONCE
    assert {"lease", "release", "remaining", "begin", "seed", "statuses", "history"} <= patient


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[tuple[PatientState, int]]:
    state, ticket = begun(tmp_path)
    with state:
        yield PatientState(state, clock, 60.0, clock.time), ticket.sweep


def flaky(monkeypatch: pytest.MonkeyPatch, name: str, times: int, *, late: bool = False) -> None:
    """Let the plain call fail so often."""
    plain = getattr(State, name)
    outage = Outage(times, plain, late=late)

    def call(*arguments: Any, **named: Any) -> Any:
        return outage(*arguments, **named)

    monkeypatch.setattr(State, name, call)
    if name not in vars(PatientState) or hasattr(vars(PatientState)[name], "__wrapped__"):
        monkeypatch.setattr(PatientState, name, patience._waiting(call))


@pytest.mark.parametrize("name", ["remaining", "statuses", "counts", "leases", "find_sweep"])
def test_reading_waits(
    name: str, opened: tuple[PatientState, int], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, sweep = opened
    argument = "s" if name == "find_sweep" else sweep
    expected = getattr(state.at_once, name)(argument)
    flaky(monkeypatch, name, 3)
    assert getattr(state, name)(argument) == expected
    assert clock.now == 3.0


def test_reading_outcomes_waits_and_reads_them_from_the_start(
    opened: tuple[PatientState, int], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, sweep = opened
    expected = list(state.at_once.outcomes(sweep))
    flaky(monkeypatch, "outcomes", 2)
    assert list(state.outcomes(sweep)) == expected
    assert (len(expected) > 1, clock.now) == (True, 2.0)


def test_an_iterator_is_there_for_the_second_try_too(
    opened: tuple[PatientState, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, sweep = opened
    cells = list(state.at_once.outcomes(sweep))
    flaky(monkeypatch, "seed", 1, late=True)
    state.seed(sweep, (Seen(one.cell, "f" * 64, one.version) for one in cells))
    assert set(state.statuses(sweep).values()) == {Status.PUBLISHED}


def test_a_record_that_had_arrived_is_not_refused(
    opened: tuple[PatientState, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server went away between the commit and its answer."""
    state, sweep = opened
    lease = state.lease(sweep, Owner.here("me"), 60.0)
    assert lease
    cell = next(one.cell for one in state.outcomes(sweep, model=lease.model))
    state.record(lease, sweep, cell, Status.BUILDING)
    flaky(monkeypatch, "record", 1, late=True)
    state.record(lease, sweep, cell, Status.BUILD_FAILED, Facts(message="no"))
    events = state.events(sweep, cell=cell, kind=Kind.STATUS)
    assert [one.status for one in events] == ["building", "build_failed"]


def test_a_record_that_is_wrong_stays_wrong(
    opened: tuple[PatientState, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, sweep = opened
    lease = state.lease(sweep, Owner.here("me"), 60.0)
    assert lease
    cell = next(one.cell for one in state.outcomes(sweep, model=lease.model))
    state.record(lease, sweep, cell, Status.PUBLISHED, Facts(tree="f" * 64))
    flaky(monkeypatch, "record", 1)
    with pytest.raises(BadTransition):
        state.record(lease, sweep, cell, Status.BUILD_FAILED)


def test_a_late_record_is_refused_after_an_outage_too(
    opened: tuple[PatientState, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, sweep = opened
    late = state.lease(sweep, Owner.here("slow"), 0.0)
    assert late
    taken = state.lease(sweep, Owner.here("fast"), 60.0, {late.model})
    assert taken
    assert taken.token > late.token
    cell = next(one.cell for one in state.outcomes(sweep, model=late.model))
    flaky(monkeypatch, "record", 2)
    with pytest.raises(LeaseLost):
        state.record(late, sweep, cell, Status.BUILDING)
    assert not state.renew(late, 60.0)
    assert not state.release(late, done=True)


def test_a_heartbeat_does_not_wait(
    opened: tuple[PatientState, int], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, sweep = opened
    lease = state.lease(sweep, Owner.here("me"), 60.0)
    assert lease
    monkeypatch.setattr(State, "renew", Outage(1, State.renew))
    with pytest.raises(StateUnavailable):
        state.renew(lease, 60.0)
    assert clock.now == 0.0


def test_opening_waits_for_a_server_that_just_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "open_state", Outage(3, open_state))
    clock = Clock()
    with patience.open_patiently(str(tmp_path / "state.db"), clock) as state:
        assert state.sweeps() == []
    assert clock.now == 3.0


def test_several_threads_wait_each_for_itself(opened: tuple[PatientState, int]) -> None:
    state, sweep = opened
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(state.remaining(sweep).open)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 4
