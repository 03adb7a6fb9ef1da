"""Looking, beside the work, whether it is still wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.fleet.orders import Orders
from flows.fleet.watch import StoppedElsewhere, Watch, end_for_all
from flows.sweep.stop import Stop
from matrix.errors import Exit, MillError
from state.errors import StateUnavailable
from state.ledger import State, open_state
from state.records import SweepInfo
from tests.states.samples import begin


class Denied(MillError):
    exit_code = Exit.HOST_CANNOT_PUBLISH


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state.db")


def looked(state: State, info: SweepInfo, run: int, **more: object) -> tuple[Watch, Stop]:
    stop = Stop()
    watch = Watch(state, info.id, run, stop, **more)  # type: ignore[arg-type]
    watch.look()
    return watch, stop


def test_nothing_happens_while_the_work_is_wanted(state: State, tmp_path: Path) -> None:
    with state:
        info = begin(state)
        orders = Orders.make(tmp_path / "orders")
        watch, stop = looked(state, info, state.last_event(info.id), orders=orders)
    assert not stop
    assert not watch.closing.is_set()


def test_an_end_for_all_stops_with_its_reason(state: State) -> None:
    with state:
        info = begin(state)
        run = state.last_event(info.id)
        end_for_all(state, info.id, Denied("no credentials"))
        _watch, stop = looked(state, info, run)
    assert isinstance(stop.error, StoppedElsewhere)
    assert stop.exit_code is Exit.HOST_CANNOT_PUBLISH
    assert stop.error.message == "no credentials"


def test_an_end_of_an_earlier_run_does_not_count(state: State) -> None:
    with state:
        info = begin(state)
        end_for_all(state, info.id, None)
        _watch, stop = looked(state, info, state.last_event(info.id))
    assert not stop


@pytest.mark.parametrize(("order", "stops", "closes"), [("drain", 0, 1), ("stop", 1, 0)])
def test_orders_of_the_worker(
    order: str, stops: bool, closes: bool, state: State, tmp_path: Path
) -> None:
    orders = Orders.make(tmp_path / "orders")
    getattr(orders, order)()
    with state:
        info = begin(state)
        watch, stop = looked(state, info, 0, orders=orders)
    assert (bool(stop), watch.closing.is_set()) == (bool(stops), bool(closes))


def test_a_slot_gives_way_after_its_turn_only_if_another_sweep_waits(state: State) -> None:
    with state:
        info = begin(state)
        alone, _stop = looked(state, info, 0, turn=0.0)
        assert not alone.closing.is_set()
        other = begin(state, stamp="other")
        meanwhile, _stop = looked(state, info, 0)
        assert not meanwhile.closing.is_set()
        after, stop = looked(state, info, 0, turn=0.0)
        assert after.closing.is_set()
        assert not stop
        state.end(other.id, 130)
        ended, _stop = looked(state, info, 0, turn=0.0)
        assert not ended.closing.is_set()


class Away(Watch):
    """One whose database does not answer; asks for the stop when it has looked twice."""

    looks = 0

    def look(self) -> None:
        self.looks += 1
        if self.looks > 1:
            self.stop.ask()
        raise StateUnavailable("the database restarts")


def test_a_database_that_is_away_stops_nobody(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.fleet.watch.INTERVAL", 0.0)
    with state:
        watch = Away(state, begin(state).id, 0, Stop())
        watch._look_on()
    assert watch.looks == 2
    assert watch.stop.error is None
