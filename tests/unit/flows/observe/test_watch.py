from __future__ import annotations

import io
import json

import pytest

from flows.observe.tally import Tally
from flows.observe.views import JsonView, PlainView
from flows.observe.watch import NOBODY, Watch
from flows.sweep.stop import Stop
from matrix.status import Status
from state.errors import StateUnavailable
from state.records import Event, Facts
from tests.states.samples import ALIVE, FOREIGN, TREE, begin, cell, rows, sql, take
from tests.sweeps.in_memory import Floor, make_plan, small_model


class Seen:
    """A view that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = 0
        self.notices: list[str] = []

    def event(self, event: Event, tally: Tally) -> None:
        self.events.append(event)

    def tick(self, tally: Tally) -> None:
        if not self.notices or self.notices[-1] != tally.notice:
            self.notices.append(tally.notice)

    def close(self) -> None:
        self.closed += 1


def test_a_sweep_that_is_over_is_not_waited_for(floor: Floor) -> None:
    floor.sweep(make_plan(small_model()))
    assert floor.begun is not None
    seen = Seen()
    Watch(floor.state, floor.begun.info, seen).follow(Stop())
    assert (seen.events, seen.closed) == ([], 1)


def test_what_happens_is_shown_once_and_who_does_it_from_the_start(floor: Floor) -> None:
    state = floor.state
    info = begin(state)
    lease = take(state, info, FOREIGN)
    state.record(lease, info.id, cell(), Status.BUILDING)
    seen = Seen()
    watch = Watch(state, info, seen)
    watch._begin()
    assert not watch.step()
    assert watch.tally.busy[FOREIGN.name][:2] == (cell(), Status.BUILDING)
    assert seen.events == []
    state.record(lease, info.id, cell(), Status.BUILT)
    state.record(lease, info.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
    assert not watch.step()
    assert [one.status for one in seen.events] == [Status.BUILT, Status.PUBLISHED]
    assert not watch.step()
    assert len(seen.events) == 2
    assert watch.tally.ended == 1
    state.release(lease, done=False)
    state.end(info.id, 130)
    assert watch.step()


def test_cells_that_a_second_run_brings_are_counted(floor: Floor) -> None:
    state = floor.state
    info = begin(state, rows(models=1))
    watch = Watch(state, info, Seen())
    watch._begin()
    assert watch.tally.total == 2
    begin(state, rows(models=3))
    assert not watch.step()
    assert watch.tally.total == 6


def test_a_sweep_that_nobody_works_on_says_so_and_what_to_do(floor: Floor) -> None:
    info = begin(floor.state)
    out = io.StringIO()
    watch = Watch(floor.state, info, PlainView(out))
    watch._begin()
    for _ in range(3):
        assert not watch.step()
    assert out.getvalue().splitlines() == [NOBODY]
    lease = take(floor.state, info, ALIVE)
    watch._look_around()
    assert watch.tally.notice == ""
    sql(floor.state, "UPDATE lease SET expires_at = 0, renewed_at = 0, ttl = 0")
    watch._look_around()
    assert watch.tally.notice == NOBODY
    assert lease.token


def test_the_end_of_one_run_is_not_the_end_while_another_works(floor: Floor) -> None:
    info = begin(floor.state)
    lease = take(floor.state, info, FOREIGN)
    watch = Watch(floor.state, info, Seen())
    watch._begin()
    floor.state.end(info.id, 130)
    assert not watch.step()
    floor.state.release(lease, done=False)
    assert watch.step()


def test_a_database_that_is_away_is_asked_again(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = begin(floor.state)
    floor.state.end(info.id, 0)
    asked = []
    real = type(floor.state).last_event

    def away_at_first(self: object, sweep_id: int) -> int:
        asked.append(sweep_id)
        if len(asked) < 3:
            raise StateUnavailable("the state is away", hint="try again")
        return real(floor.state, sweep_id)

    monkeypatch.setattr(type(floor.state), "last_event", away_at_first)
    stop = Stop()
    monkeypatch.setattr(stop, "wait", lambda seconds: False)
    seen = Seen()
    Watch(floor.state, info, seen).follow(stop)
    assert len(asked) == 3
    assert "the state is away; trying again" in seen.notices
    assert seen.closed == 1


def test_looking_away_ends_it(floor: Floor) -> None:
    info = begin(floor.state)
    stop = Stop()
    stop.ask()
    seen = Seen()
    Watch(floor.state, info, seen).follow(stop)
    assert seen.closed == 1


def test_json_lines_hold_no_whole_plan(floor: Floor) -> None:
    plan = make_plan(small_model())
    info = begin(floor.state, stamp=plan.stamp)
    out = io.StringIO()
    watch = Watch(floor.state, info, JsonView(out))
    watch._begin()
    from flows.sweep.recorded_plan import note_plan

    note_plan(floor.state, info.id, plan)
    watch.step()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["kind"], one["data"]) for one in lines] == [("notice", None)]
