"""Whether a sweep of a fleet has a parent, known from the state alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.fleet.lead import NIGHTLY, Heartbeat, ParentWatch, earlier_night
from flows.fleet.run import record_run
from flows.observe.unserved import BEAT, SILENCE, unserved_of
from flows.plan.recorded import note_plan
from state.records import Kind
from state.state import State, open_state
from tests.fleets.runs import begun
from tests.machine.timing import eventually
from tests.states.samples import FOREIGN

START = 300.0


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with open_state(tmp_path / "state.db") as made:
        yield made


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    state, run = begun(tmp_path)
    with state:
        yield Watched(state, run.sweep, monkeypatch)


class Watched:
    """A sweep and who watches its parent, with a clock of our own."""

    def __init__(self, state: State, sweep: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.asked, self.reached = 1000.0, list[str](), True
        monkeypatch.setattr("flows.fleet.lead.time.monotonic", lambda: self.now)
        self.state, self.sweep, self.run = state, sweep, state.last_event(sweep)
        self.parents = ParentWatch(state, sweep, self.run, START, self.ask)

    def ask(self, request: str) -> bool:
        self.asked.append(request)
        return self.reached

    def beat(self) -> int:
        self.state.note(self.sweep, Kind.NOTICE, {BEAT: 30.0, SILENCE: 120.0})
        return self.state.last_event(self.sweep)

    def pass_(self, seconds: float, step: float = 5.0) -> None:
        for _look in range(int(seconds / step)):
            self.now += step
            self.parents.look()


def test_a_parent_that_does_not_begin_in_time_is_replaced_again_and_again(watched: Watched) -> None:
    watched.pass_(START)
    assert watched.asked == []
    watched.pass_(2 * START + 10)
    assert watched.asked == [f"{watched.run}-1", f"{watched.run}-2"]


def test_a_silent_parent_is_replaced_and_one_that_speaks_is_not(watched: Watched) -> None:
    for _beat in range(20):
        last = watched.beat()
        watched.pass_(100)
    assert watched.asked == []
    watched.pass_(30)
    assert watched.asked == [f"{last}-1"]
    last = watched.beat()
    watched.pass_(130)
    assert watched.asked[1:] == [f"{last}-1"]


def test_an_outage_of_the_state_is_nobodys_death(watched: Watched) -> None:
    watched.beat()
    watched.pass_(10)
    watched.now += 3600.0
    watched.pass_(100)
    assert watched.asked == []


def test_a_server_that_cannot_be_asked_is_asked_at_the_next_look(watched: Watched) -> None:
    watched.reached = False
    watched.pass_(START + 15)
    assert watched.asked == [f"{watched.run}-1"] * 3


def test_a_parent_says_that_it_lives_from_the_beginning(state: State) -> None:
    info = state.begin("s", "dir:x", [], {}, {}, {})
    with Heartbeat(state, info.id, 3600.0):
        assert eventually(lambda: any(state.events(info.id, kind=Kind.NOTICE)))
    (notice,) = state.events(info.id, kind=Kind.NOTICE)
    assert notice.data == {BEAT: 3600.0, SILENCE: 4 * 3600.0}


@pytest.mark.parametrize(("silence", "told"), [(3600.0, False), (-1.0, True)])
def test_status_says_that_a_parent_is_silent(silence: float, told: bool, tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        record_run(state, run)
        note_plan(state, run.sweep, run.plan)
        state.note(run.sweep, Kind.NOTICE, {BEAT: 30.0, SILENCE: silence})
        lines = unserved_of(state, run.sweep).lines()
    assert [line.startswith("its parent has said nothing for") for line in lines] == [True] * told


@pytest.mark.parametrize(
    ("kind", "ended", "left_out"),
    [
        ("nightly", "before", False),
        ("nightly", "after", True),  # it ended while this run waited for a worker
        ("nightly", "never, silent", False),
        ("nightly", "never, speaks", True),
        ("nightly", "never, builds", True),
        ("other", "never, speaks", False),
    ],
)
def test_a_night_is_left_out_for_one_that_was_worked_on_when_it_was_due(
    kind: str, ended: str, left_out: bool, tmp_path: Path
) -> None:
    state, _run = begun(tmp_path)
    with state:
        recorded = {NIGHTLY: "mill"} if kind == "nightly" else {}
        info = state.begin("n1", "dir:x", [], {}, recorded, {})
        due = state.now() + (3600.0 if ended == "before" else -3600.0)
        if ended in {"before", "after"}:
            state.end(info.id, 0)
        elif ended != "never, builds":
            silence = 3600.0 if ended == "never, speaks" else -1.0
            state.note(info.id, Kind.NOTICE, {BEAT: 30.0, SILENCE: silence})
        if ended == "never, builds":
            state.end(info.id, 0)
            info = state.begin("s", "dir:x", [], {}, recorded, {})
            assert state.lease(info.id, FOREIGN, 3600.0)
            due = state.now() + 3600.0
        found = earlier_night(state, "mill", due)
        assert (found.id if found else None) == (info.id if left_out else None)
