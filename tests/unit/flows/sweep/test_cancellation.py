"""Cancelling a sweep through the state, and noticing it beside the work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from flows.stop import Stop
from flows.sweep import cancellation as module
from flows.sweep.cancellation import (
    CancellationWatch,
    StoppedElsewhere,
    cancel_sweep,
    stop_for_all,
)
from matrix.errors import Exit, MillError
from matrix.status import Status
from state.errors import StateError, StateUnavailable
from state.records import Kind
from state.state import State, open_state
from tests.states.samples import FOREIGN, begin, take

LIMIT = 30.0


class Denied(MillError):
    exit_code = Exit.HOST_CANNOT_PUBLISH


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state.db")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.001)


def checked(state: State, sweep: int, after: int) -> Stop:
    stop = Stop()
    CancellationWatch(state, sweep, after, stop).check()
    return stop


def test_nothing_happens_while_nobody_cancels(state: State) -> None:
    with state:
        info = begin(state)
        assert not checked(state, info.id, state.last_event(info.id))


def test_a_stop_for_all_has_its_reason(state: State) -> None:
    with state:
        info = begin(state)
        after = state.last_event(info.id)
        stop_for_all(state, info.id, Denied("no credentials"))
        stop = checked(state, info.id, after)
    assert isinstance(stop.error, StoppedElsewhere)
    assert stop.exit_code is Exit.HOST_CANNOT_PUBLISH
    assert stop.error.message == "no credentials"


def test_only_a_stop_after_the_runs_own_beginning_counts(state: State) -> None:
    with state:
        info = begin(state)
        stop_for_all(state, info.id, None)
        last = state.last_event(info.id)
        assert not checked(state, info.id, last)
        assert checked(state, info.id, last - 1)


class UnreachableState:
    """A state that cannot be read; `tried` counts how often somebody tried."""

    def __init__(self, error: StateError) -> None:
        self.error = error
        self.tried = 0
        self.twice = threading.Event()

    def events(self, *_arguments: Any, **_named: Any) -> Any:
        self.tried += 1
        if self.tried > 1:
            self.twice.set()
        raise self.error


def test_a_database_that_is_away_stops_nobody() -> None:
    state, stop = UnreachableState(StateUnavailable("the database restarts")), Stop()
    with CancellationWatch(cast("State", state), 1, 1, stop):
        assert state.twice.wait(LIMIT)
    assert not stop


def test_a_database_that_is_not_ours_any_more_ends_the_work() -> None:
    stop = Stop()
    with CancellationWatch(cast("State", UnreachableState(StateError("dropped"))), 1, 1, stop):
        assert stop.event.wait(LIMIT)
    assert str(stop.error) == "dropped"


def test_cancelling_leaves_a_sweep_that_can_be_resumed(state: State) -> None:
    with state:
        info = begin(state)
        cells = cancel_sweep(state, info.id)
        after = state.find_sweep(info.stamp)
        assert after is not None
        assert after.exit_code == Exit.INTERRUPTED
        outcomes = list(state.outcomes(info.id))
        assert cells == len(outcomes)
        assert {one.status for one in outcomes} == {Status.CANCELLED}
        assert len(list(state.events(info.id, kind=Kind.INTERRUPTED))) == 1
        begin(state)
        assert {one.status for one in state.outcomes(info.id)} == {Status.PLANNED}


def test_cancelling_takes_nothing_out_of_hands_that_hold_on(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELEASED", 0.0)
    with state:
        info = begin(state)
        held = take(state, info, FOREIGN)
        cancel_sweep(state, info.id)
        left = {one.status for one in state.outcomes(info.id, model=held.model)}
        assert left == {Status.PLANNED}
