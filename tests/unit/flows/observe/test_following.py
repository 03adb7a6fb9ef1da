from __future__ import annotations

import io
import json

import pytest

from flows.observe.following import NOBODY, StatusWatch
from flows.observe.progress import SweepProgress
from flows.observe.views import JsonView, PlainView, View
from flows.stop import Stop
from matrix.status import FailureClass, Status
from state.errors import StateUnavailable
from state.records import Event, Facts, Kind
from tests.states.samples import ALIVE, FOREIGN, TREE, begin, cell, rows, sql, take
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


class Seen(View):
    """A view that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = 0
        self.notices: list[str] = []

    def event(self, event: Event, progress: SweepProgress) -> None:
        self.events.append(event)

    def tick(self, progress: SweepProgress) -> None:
        if not self.notices or self.notices[-1] != progress.notice:
            self.notices.append(progress.notice)

    def close(self) -> None:
        self.closed += 1


def test_a_sweep_that_is_over_is_not_waited_for(harness: SweepHarness) -> None:
    harness.sweep(make_plan(small_model()))
    assert harness.begun is not None
    seen = Seen()
    StatusWatch(harness.state, harness.begun.info, seen).follow(Stop())
    assert (seen.events, seen.closed) == ([], 1)


def test_what_happens_is_shown_once_and_who_does_it_from_the_start(harness: SweepHarness) -> None:
    state = harness.state
    info = begin(state)
    lease = take(state, info, FOREIGN)
    state.record(lease, info.id, cell(), Status.BUILDING)
    seen = Seen()
    watch = StatusWatch(state, info, seen)
    watch.begin()
    assert not watch.step()
    assert watch.progress.busy[FOREIGN.name][:2] == (cell(), Status.BUILDING)
    assert seen.events == []
    state.record(lease, info.id, cell(), Status.BUILT)
    state.record(lease, info.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
    assert not watch.step()
    assert [one.status for one in seen.events] == [Status.BUILT, Status.PUBLISHED]
    assert not watch.step()
    assert len(seen.events) == 2
    assert watch.progress.ended == 1
    state.release(lease, done=False)
    state.end(info.id, 130)
    assert watch.step()


@pytest.mark.parametrize("failed", [False, True])
def test_what_is_not_asked_for_is_neither_counted_nor_shown(
    harness: SweepHarness, *, failed: bool
) -> None:
    state = harness.state
    info = begin(state)
    lease = take(state, info, FOREIGN)
    good, bad = cell(), cell(target="mlas_cpu")
    seen = Seen()
    watch = StatusWatch(state, info, seen, only=() if failed else [bad], failed=failed)
    watch.begin()
    assert watch.progress.total == (len(rows()) if failed else 1)
    for one in (good, bad):
        state.record(lease, info.id, one, Status.BUILDING)
    assert not watch.step()
    told = Facts(failure=FailureClass.EXPORT, message="no")
    state.record(lease, info.id, bad, Status.BUILD_FAILED, told)
    state.record(lease, info.id, good, Status.BUILT)
    assert not watch.step()
    shown = [(one.cell, one.status) for one in seen.events if one.cell]
    began = [] if failed else [(bad, Status.BUILDING)]
    assert shown == [*began, (bad, Status.BUILD_FAILED)]
    assert watch.progress.failed == 1
    state.release(lease, done=False)
    assert not watch.step(), "what is not shown is still open"
    state.end(info.id, 130)
    assert watch.step()


def test_cells_that_a_second_run_brings_are_counted(harness: SweepHarness) -> None:
    state = harness.state
    info = begin(state, rows(models=1))
    watch = StatusWatch(state, info, Seen())
    watch.begin()
    assert watch.progress.total == 2
    begin(state, rows(models=3))
    assert not watch.step()
    assert watch.progress.total == 6


def test_a_sweep_that_nobody_works_on_says_so_and_what_to_do(harness: SweepHarness) -> None:
    info = begin(harness.state)
    out = io.StringIO()
    watch = StatusWatch(harness.state, info, PlainView(out))
    watch.begin()
    for _ in range(3):
        assert not watch.step()
    assert out.getvalue().splitlines() == [f"{NOBODY} {info.stamp}"]
    lease = take(harness.state, info, ALIVE)
    watch.read_leases()
    assert watch.progress.notice == ""
    sql(harness.state, "UPDATE lease SET expires_at = 0, renewed_at = 0, ttl = 0")
    watch.read_leases()
    assert watch.progress.notice == f"{NOBODY} {info.stamp}"
    assert lease.token


def test_the_end_of_one_run_is_not_the_end_while_another_works(harness: SweepHarness) -> None:
    info = begin(harness.state)
    lease = take(harness.state, info, FOREIGN)
    watch = StatusWatch(harness.state, info, Seen())
    watch.begin()
    harness.state.end(info.id, 130)
    assert not watch.step()
    harness.state.release(lease, done=False)
    assert watch.step()


def test_a_database_that_is_away_is_asked_again(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = begin(harness.state)
    harness.state.end(info.id, 0)
    asked = []
    real = type(harness.state).last_event

    def away_at_first(self: object, sweep_id: int) -> int:
        asked.append(sweep_id)
        if len(asked) < 3:
            raise StateUnavailable("the state is away", hint="try again")
        return real(harness.state, sweep_id)

    monkeypatch.setattr(type(harness.state), "last_event", away_at_first)
    stop = Stop()
    monkeypatch.setattr(stop, "wait", lambda seconds: False)
    seen = Seen()
    StatusWatch(harness.state, info, seen).follow(stop)
    assert len(asked) == 3
    assert "the state is away; trying again" in seen.notices
    assert seen.closed == 1


def test_looking_away_ends_it(harness: SweepHarness) -> None:
    info = begin(harness.state)
    stop = Stop()
    stop.ask()
    seen = Seen()
    StatusWatch(harness.state, info, seen).follow(stop)
    assert seen.closed == 1


def test_json_lines_hold_no_whole_plan(harness: SweepHarness) -> None:
    plan = make_plan(small_model())
    info = begin(harness.state, stamp=plan.stamp)
    out = io.StringIO()
    watch = StatusWatch(harness.state, info, JsonView(out))
    watch.begin()
    from flows.plan.recorded import note_plan

    note_plan(harness.state, info.id, plan)
    watch.step()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(one["kind"], one["data"]) for one in lines] == [("notice", None)]


def test_who_looks_on_later_sees_what_an_engine_says_it_is_doing(harness: SweepHarness) -> None:
    state = harness.state
    info = begin(state)
    lease = take(state, info, FOREIGN)
    state.record(lease, info.id, cell(), Status.BUILDING)
    state.set_activity(lease, cell(), "calibrating 40/128")
    out = io.StringIO()
    watch = StatusWatch(state, info, JsonView(out))
    watch.begin()
    assert watch.progress.doing(FOREIGN.name) == "calibrating 40/128"
    assert not watch.step()
    assert not watch.step()
    (line,) = out.getvalue().splitlines()
    assert json.loads(line) == {
        "type": "activity",
        "owner": FOREIGN.name,
        "cell": cell(),
        "activity": "calibrating 40/128",
    }
    state.record(lease, info.id, cell(), Status.BUILT)
    state.record(lease, info.id, cell(), Status.VERIFYING)
    watch.step()
    assert watch.progress.doing(FOREIGN.name) == "verifying", "the engine is through with it"
    state.release(lease, done=False)
    assert state.leases(info.id) == []


def test_what_a_slot_that_is_taken_over_was_doing_is_not_told_of_the_next_one(
    harness: SweepHarness,
) -> None:
    state = harness.state
    info = begin(state)
    lost = take(state, info, FOREIGN, ttl=0)
    taken = take(state, info, ALIVE)
    assert taken.model == lost.model
    state.set_activity(lost, cell(), "exporting")
    assert [one.activity for one in state.leases(info.id)] == [None]


def test_a_slot_that_publishes_beside_its_build_shows_the_build() -> None:
    progress = SweepProgress({cell(): Status.PLANNED, cell(1): Status.PLANNED})
    for number, (name, status) in enumerate(
        [
            (cell(), Status.BUILDING),
            (cell(), Status.VERIFIED),
            (cell(1), Status.BUILDING),
            (cell(), Status.PUBLISHING),
            (cell(), Status.PUBLISHED),
        ]
    ):
        progress.apply(happened(number, name, status))
    assert progress.busy["slot-1"][:2] == (cell(1), Status.BUILDING)


def test_plain_lines_tell_of_a_long_stage_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    out = io.StringIO()
    view, progress = PlainView(out), SweepProgress({cell(): Status.PLANNED})
    wrong = 40 * 24 * 3600.0  # the clock of the day is set meanwhile
    progress.apply(happened(1, cell(), Status.BUILDING, at=1000.0))
    monkeypatch.setattr("time.time", lambda: wrong)
    for second in range(200):
        clock[0] = 1000.0 + second
        progress.activities = {"slot-1": (cell(), f"calibrating {second}/200")}
        view.tick(progress)
    told = [line for line in out.getvalue().splitlines() if "at work" in line]
    assert told == [
        f"at work: calibrating 60/200  {cell()}  60s",
        f"at work: calibrating 120/200  {cell()}  2m00s",
        f"at work: calibrating 180/200  {cell()}  3m00s",
    ]


def happened(number: int, name: str, status: Status, at: float = 0.0) -> Event:
    return Event(number, at, 1, name, None, Kind.STATUS, status, 1, "slot-1", None)
