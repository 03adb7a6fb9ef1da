"""What the parent asks for while work remains, when it steps down, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import securesystemslib.signer  # noqa: F401 - its import starts a process, which no test may

from feed.directory import DirectoryFeed
from flows.fleet.parent import HELPLESS, LEADS, SUCCESSOR_TRIES, Parent
from flows.fleet.run import FleetRun, record_run
from flows.fleet.slot_runs import SlotRuns
from flows.fleet.worker_folder import WorkerFolder
from flows.observe.unserved import UNSERVED, one_line, unserved_of
from flows.stop import Stop
from flows.sweep.cancellation import StoppedElsewhere
from matrix.errors import Exit, MillError
from matrix.needs import Words
from matrix.status import FailureClass, Status
from state.records import Facts, Kind, Owner
from state.state import State
from tests.fleets.runs import begun
from tests.machine.dead import dead_name
from tests.states.samples import FOREIGN, begin, rows

SERVED: dict[str, Words] = {"good": frozenset({"engine:fake"})}


class Quick(Stop):
    """A stop that nobody sleeps through."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0

    def wait(self, seconds: float) -> bool:
        self.slept += seconds
        return bool(self)


class Slots(SlotRuns):
    """Served queues as told; after a round something happens, at first the end of the sweep."""

    def __init__(self, stop: Stop, **queues: Words) -> None:
        self.served = queues
        self.asked: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        self.done: list[str] = []
        self.then: Callable[[], None] = stop.ask
        self.away = False

    def served_queues(self) -> dict[str, Words]:
        if self.away:
            raise httpx.ConnectError("the server is away")
        return self.served

    def refresh(self) -> None:
        """Nothing runs."""

    def fill(self, queue: str, demand: int, working: int) -> None:
        self.asked[queue] = demand
        self.working = working
        self.then()

    def failing(self) -> dict[str, str]:
        return self.failed

    def cancel_waiting(self) -> None:
        self._do("cancel waiting")

    def start_another_parent(self) -> None:
        self._do("start another parent")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.away:
            raise httpx.ConnectError("the server is away")


def parent_of(
    state: State, run: FleetRun, root: Path, stop: Stop, orders: WorkerFolder | None = None
) -> Parent:
    settings = run.settings({"MODELMILL_HOME": str(root / "home")}, root)
    return Parent(state, run, settings, stop, orders)


@pytest.fixture
def state_and_run(tmp_path: Path) -> Iterator[tuple[State, FleetRun]]:
    """A sweep that an earlier run has left."""
    state, run = begun(tmp_path)
    with state:
        _sweep, run = parent_of(state, replace(run, newest={}), tmp_path, Quick()).begin()
        yield state, run


def fail(state: State, sweep: int) -> str:
    """Let a cell fail for a cause that stays; returns its id."""
    facts = Facts(failure=FailureClass.QUANTIZE, message="no scales", retryable=False)
    cell = min(cell for cell in state.statuses(sweep) if "@" in cell)
    state.record(None, sweep, cell, Status.BUILD_FAILED, facts)
    return cell


def test_a_retry_takes_failed_cells_up_when_nothing_else_can_stop_it(
    state_and_run: tuple[State, FleetRun], tmp_path: Path
) -> None:
    state, run = state_and_run
    cell, text = fail(state, run.sweep), tmp_path / "text"
    text.write_text("no folder", encoding="utf-8")
    wanted = replace(run, again=[cell])
    wanted = replace(wanted, id=record_run(state, wanted))
    settings = parent_of(state, wanted, tmp_path, Quick()).settings
    for wrong in (
        replace(settings, sign_key=str(tmp_path / "none.pem")),
        replace(settings, feed=str(text)),
    ):
        with pytest.raises(MillError, match=r"none\.pem|text"):
            replace(parent_of(state, wanted, tmp_path, Quick()), settings=wrong).begin()
    outcome = state.outcome(run.sweep, cell)
    assert outcome is not None
    assert (outcome.status, outcome.message) == (Status.BUILD_FAILED, "no scales")
    parent_of(state, wanted, tmp_path, Quick()).begin()
    assert state.statuses(run.sweep)[cell] is Status.PLANNED


def test_a_later_parent_of_a_retry_leaves_what_failed_since(
    state_and_run: tuple[State, FleetRun], tmp_path: Path
) -> None:
    state, run = state_and_run
    wanted = replace(run, again=[fail(state, run.sweep)])
    wanted = replace(wanted, id=record_run(state, wanted))
    stop = Quick()
    first = parent_of(state, wanted, tmp_path, stop)
    _sweep, led = first.begin()
    first.lead(led, Slots(stop, **SERVED))
    cell = fail(state, run.sweep)
    parent_of(state, wanted, tmp_path, Quick()).begin()
    assert state.statuses(run.sweep)[cell] is Status.BUILD_FAILED


def test_each_queue_is_asked_for_what_its_workers_may_do(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    stop = Stop()
    slots = Slots(stop, good=frozenset({"engine:fake"}), bad=frozenset({"engine:other"}))
    with state:
        parent_of(state, run, tmp_path, stop).supervise(run, slots)
        assert slots.asked == {"good": 2, "bad": 0}
        assert not any(state.events(run.sweep, kind=Kind.NOTICE))


def test_what_nobody_alive_can_build_is_said(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    stop = Stop()
    slots = Slots(stop, bad=frozenset({"engine:other"}))
    with state:
        Parent(state, run, run.settings({}, tmp_path), stop).supervise(run, slots)
        (notice,) = state.events(run.sweep, kind=Kind.NOTICE)
    assert notice.data is not None
    assert notice.data[UNSERVED][0]["needs"] == ["engine:fake"]
    assert notice.data[UNSERVED][0]["count"] == 6


@pytest.mark.parametrize(
    ("offers", "told"),
    [
        ("engine:fake", []),
        ("engine:other", ["6 cells wait for a machine that offers engine:fake "]),
        (None, ["6 cells wait: no worker is alive "]),
    ],
)
def test_who_builds_is_alive_although_nobody_asks_the_server_for_work(
    offers: str | None, told: list[str], tmp_path: Path
) -> None:
    state, run = begun(tmp_path)
    stop = Quick()
    with state:
        other = begin(state, rows(1), stamp="other")
        if offers:
            words = frozenset({offers})
            assert state.lease(other.id, FOREIGN, 3600, offers=words)
        slots = Slots(stop)
        slots.refresh = stop.ask  # type: ignore[method-assign]  # what happens in a round
        parent_of(state, run, tmp_path, stop).supervise(run, slots)
        notices = [one.data or {} for one in state.events(run.sweep, kind=Kind.NOTICE)]
    lines = [one_line(notice[UNSERVED]).partition("(")[0] for notice in notices]
    assert lines == told


def test_slots_that_fail_at_once_are_told_once(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    stop = Quick()
    slots = Slots(stop, **SERVED)
    slots.failed = {"good": "no feed", "gone": "long ago"}
    rounds: list[None] = []

    def round_() -> None:
        rounds.append(None)
        if len(rounds) == 3:
            stop.ask()

    slots.then = round_
    with state:
        parent_of(state, run, tmp_path, stop).supervise(run, slots)
        (notice,) = state.events(run.sweep, kind=Kind.NOTICE)
        assert notice.data == {UNSERVED: [{"ends": "no feed", "needs": ["engine:fake"]}]}
        assert unserved_of(state, run.sweep).lines() == [
            "slots fail: no feed",
            "  next: repair the machine that offers engine:fake; it is tried again",
        ]


@pytest.mark.parametrize(("failed", "ends"), [({"good"}, False), ({"good", "other"}, True)])
def test_a_sweep_ends_when_no_machine_can_work_for_long(
    failed: set[str], ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("flows.fleet.parent.time.monotonic", lambda: now)
    state, run = begun(tmp_path)
    stop = Quick()
    slots = Slots(stop, **SERVED, other=frozenset({"engine:fake"}))
    slots.failed = dict.fromkeys(failed, "the feed is unavailable")
    rounds: list[None] = []

    def round_() -> None:
        nonlocal now
        rounds.append(None)
        now += HELPLESS / 4
        if len(rounds) == 20:
            stop.ask()

    slots.then = round_
    with state:
        parent_of(state, run, tmp_path, stop).supervise(run, slots)
    assert (stop.error is not None) == ends
    if stop.error is not None:
        assert "no machine of the fleet can work: the feed is unavailable" in stop.error.message
        assert stop.error.hint == "repair it, then: modelmill resume 20260609 --fleet"


def test_a_sweep_with_nothing_open_ends_at_once(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    slots = Slots(Stop())
    with state:
        state.cancel_open(run.sweep)
        while (lease := state.lease(run.sweep, Owner.here("me"), 60.0)) is not None:
            state.release(lease, done=True)
        Parent(state, run, run.settings({}, tmp_path), Stop()).supervise(run, slots)
    assert slots.asked == {}


def test_the_end_is_told_to_all_once(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    stop = Quick()
    slots = Slots(stop, **SERVED)
    slots.away = True
    with state:
        slots.away = False
        assert parent_of(state, run, tmp_path, stop).lead(run, slots)
        assert len(list(state.events(run.sweep, kind=Kind.INTERRUPTED))) == 1
    assert slots.done == ["cancel waiting"]


def test_who_was_stopped_by_others_does_not_tell_them(tmp_path: Path) -> None:
    """A resume may have begun meanwhile, and would take it for its own end."""
    state, run = begun(tmp_path)
    stop = Quick()
    slots = Slots(stop, **SERVED)
    slots.then = lambda: stop.ask(StoppedElsewhere({"why": "cancelled"}))
    with state:
        assert parent_of(state, run, tmp_path, stop).lead(run, slots)
        assert not any(state.events(run.sweep, kind=Kind.INTERRUPTED))


def test_the_parent_that_began_last_leads(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    first, second = Quick(), Quick()
    slots, others = Slots(first, **SERVED), Slots(second, **SERVED)
    leads: list[bool] = []

    def another() -> None:
        slots.then = lambda: None
        leads.append(parent_of(state, run, tmp_path, second).lead(run, others))

    slots.then = another
    with state:
        assert not parent_of(state, run, tmp_path, first).lead(run, slots)
        assert next(state.events(run.sweep, kind=Kind.INTERRUPTED)).data == {
            "why": "cancelled",
            "exit_code": Exit.INTERRUPTED,
        }
    assert leads == [True]
    assert slots.done == []  # what waits is the other's


@pytest.mark.parametrize("killed", [False, True])
def test_a_parent_whose_worker_goes_has_another_one_started(killed: bool, tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    orders = WorkerFolder.make(tmp_path / "orders")
    slots = Slots(Stop(), **SERVED)

    def go() -> None:
        if killed:
            [owner] = orders.path.glob("owner-*")
            owner.rename(orders.path / f"owner-{dead_name()}")
        else:
            orders.drain()

    slots.then = go
    with state:
        lead = parent_of(state, run, tmp_path, Quick(), orders)
        assert not lead.lead(run, slots)
        assert not any(state.events(run.sweep, kind=Kind.INTERRUPTED))
    assert slots.done == ["start another parent"]


def test_a_parent_that_cannot_hand_over_goes_all_the_same(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    orders = WorkerFolder.make(tmp_path / "orders")
    orders.drain()
    slots = Slots(Stop(), **SERVED)
    slots.away = True
    with state:
        lead = parent_of(state, run, tmp_path, Quick(), orders)
        assert not lead.lead(run, slots)
    assert slots.done == ["start another parent"] * SUCCESSOR_TRIES


def test_a_server_that_is_away_is_asked_again(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    slots = Slots(Stop(), **SERVED)
    slots.away = True

    class Returns(Quick):
        def wait(self, seconds: float) -> bool:
            slots.away = self.slept < 10
            return super().wait(seconds)

    stop = Returns()
    slots.then = stop.ask
    with state:
        parent_of(state, run, tmp_path, stop).supervise(run, slots)
    assert stop.slept > 10
    assert slots.asked == {"good": 2}


def test_a_sweep_that_was_ordered_again_is_not_ended_by_the_parent_before(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    stop = Quick()
    slots = Slots(stop, **SERVED)
    slots.then = lambda: stop.ask(StoppedElsewhere({}))
    with state:
        lead = parent_of(state, replace(run, newest={}), tmp_path, stop)
        DirectoryFeed(tmp_path / "home" / "feed")
        was, order = lead.begin()
        lead.lead(order, slots)
        parent_of(state, order, tmp_path, Quick()).begin()
        summary, index = lead.finish(was)
        assert (summary.open > 0, index) == (True, None)
        assert state.sweeps()[0].ended_at is None


def test_a_parent_leaves_a_mark_when_it_takes_the_lead(tmp_path: Path) -> None:
    state, run = begun(tmp_path)
    with state:
        stop = Quick()
        parent_of(state, run, tmp_path, stop).lead(run, Slots(stop, **SERVED))
        (notice,) = state.events(run.sweep, kind=Kind.NOTICE)
        assert (notice.data or {})[LEADS] == run.id
