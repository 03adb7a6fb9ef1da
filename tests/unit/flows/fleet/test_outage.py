"""Orders are seen while the database is away; what killed workers left is cleared."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from flows.fleet import watch as module
from flows.fleet.orders import Orders
from flows.fleet.watch import Watch, end_for_all
from flows.fleet.worker import _clear_dead
from flows.sweep.stop import Stop
from state.errors import StateError, StateUnavailable
from state.ledger import State
from tests.fleets.tickets import begun

LIMIT = 30.0


class Away:
    """A state that cannot be read; `asked` is set when it was tried."""

    def __init__(self, error: StateError) -> None:
        self.error = error
        self.asked = threading.Event()

    def events(self, *_arguments: Any, **_named: Any) -> Any:
        self.asked.set()
        raise self.error


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.001)


def test_a_worker_that_drains_is_heeded_while_the_database_is_away(tmp_path: Path) -> None:
    orders, stop = Orders.make(tmp_path / "orders"), Stop()
    state = Away(StateUnavailable("restarting"))
    with Watch(cast("State", state), 1, 1, stop, orders) as watch:
        assert state.asked.wait(LIMIT)
        assert not stop
        orders.drain()
        assert watch.closing.wait(LIMIT)
        orders.stop()
        assert stop.event.wait(LIMIT)


def test_a_database_that_is_not_ours_any_more_ends_the_work(tmp_path: Path) -> None:
    stop = Stop()
    with Watch(cast("State", Away(StateError("dropped"))), 1, 1, stop):
        assert stop.event.wait(LIMIT)
    assert str(stop.error) == "dropped"


def test_only_an_end_after_the_own_beginning_counts(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    with state:
        end_for_all(state, ticket.sweep, None)
        last = state.last_event(ticket.sweep)
        stop = Stop()
        Watch(state, ticket.sweep, last, stop).look()
        assert not stop
        Watch(state, ticket.sweep, last - 1, stop).look()
        assert stop


def test_what_killed_workers_left_goes_when_nobody_finishes_there(tmp_path: Path) -> None:
    folders = tmp_path / "fleet"
    for name in ("alive", "dead", "busy"):
        orders = Orders.make(folders / name)
        if name != "alive":
            (orders.folder / "owner").write_text("1 another-start")
    (folders / "half.new").mkdir()
    with Orders(folders / "busy").busy():
        _clear_dead(folders)
    assert sorted(one.name for one in folders.iterdir()) == ["alive", "busy", "half.new"]
    _clear_dead(folders)
    assert sorted(one.name for one in folders.iterdir()) == ["alive", "half.new"]
