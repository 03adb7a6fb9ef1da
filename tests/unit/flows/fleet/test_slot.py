"""What a slot notices beside its work: its worker drains, another sweep waits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from flows.fleet import slot
from flows.fleet.slot import SlotWatch
from flows.fleet.worker_folder import WorkerFolder
from flows.stop import Stop
from flows.sweep import cancellation
from state.errors import StateUnavailable
from state.records import SweepInfo
from state.state import State, open_state
from tests.states.samples import begin

LIMIT = 30.0


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state.db")


def checked(state: State, info: SweepInfo, **more: Any) -> tuple[SlotWatch, Stop]:
    stop = Stop()
    watch = SlotWatch(state, info.id, state.last_event(info.id), stop, **more)
    watch.check()
    return watch, stop


@pytest.mark.parametrize(
    ("order", "stops", "closes"),
    [("", False, False), ("drain", False, True), ("stop", True, False)],
)
def test_the_worker_drains_and_stops_its_slots(
    order: str, stops: bool, closes: bool, state: State, tmp_path: Path
) -> None:
    folder = WorkerFolder.make(tmp_path / "worker")
    if order:
        getattr(folder, order)()
    with state:
        watch, stop = checked(state, begin(state), worker=folder)
    assert (bool(stop), watch.closing.is_set()) == (stops, closes)


def test_a_slot_makes_room_after_its_turn_only_if_another_sweep_waits(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    with state:
        info = begin(state)
        other = begin(state, stamp="other")
        meanwhile, _stop = checked(state, info)
        assert not meanwhile.closing.is_set()
        monkeypatch.setattr(slot, "TURN", -1.0)  # over, also where a clock ticks slowly
        after, stop = checked(state, info)
        assert after.closing.is_set()
        assert not stop
        state.end(other.id, 130)
        ended, _stop = checked(state, info)
        assert not ended.closing.is_set()


class UnreachableState:
    """A state whose database restarts; `asked` is set when somebody tried."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def events(self, *_arguments: Any, **_named: Any) -> Any:
        self.asked.set()
        raise StateUnavailable("restarting")


def test_a_worker_that_drains_is_heeded_while_the_database_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "INTERVAL", 0.001)
    folder, stop = WorkerFolder.make(tmp_path / "worker"), Stop()
    state = UnreachableState()
    with SlotWatch(cast("State", state), 1, 1, stop, worker=folder) as watch:
        assert state.asked.wait(LIMIT)
        assert not stop
        folder.drain()
        assert watch.closing.wait(LIMIT)
        folder.stop()
        assert stop.event.wait(LIMIT)
