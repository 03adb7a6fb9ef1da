"""What the parent asks for while work remains, when it steps down, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from flows.fleet.needs import Words
from flows.fleet.orders import Orders
from flows.fleet.parent import HAND_OVERS, LATELY, LEADS, Ended, Parent
from flows.fleet.ticket import Ticket
from flows.fleet.watch import StoppedElsewhere
from flows.observe.waiting import UNSERVED, waiting
from flows.sweep.stop import Stop
from matrix.errors import Exit
from state.ledger import State
from state.records import Kind, Owner
from tests.fleets.tickets import begun

SERVED: dict[str, Words] = {"good": frozenset({"engine:fake"})}


class Quick(Stop):
    """A stop that nobody sleeps through."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0

    def wait(self, seconds: float) -> bool:
        self.slept += seconds
        return bool(self)


class Hands:
    """Served queues as told; after a round something happens, at first the end of the sweep."""

    def __init__(self, stop: Stop, **queues: Words) -> None:
        self.served = queues
        self.asked: dict[str, int] = {}
        self.failing: dict[str, str] = {}
        self.busy: list[bool] = []
        self.done: list[str] = []
        self.then: Callable[[], None] = stop.ask
        self.away = False

    def queues(self) -> dict[str, Words]:
        if self.away:
            raise ConnectionError("the server is away")
        return self.served

    def look(self) -> None:
        """Nothing runs."""

    def fill(self, queue: str, demand: int, *, busy: bool = False) -> None:
        self.asked[queue] = demand
        self.busy.append(busy)
        self.then()

    def stumbling(self) -> dict[str, str]:
        return self.failing

    def dismiss(self) -> None:
        self._do("dismiss")

    def hand_over(self) -> None:
        self._do("hand over")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.away:
            raise ConnectionError("the server is away")


def parent_of(
    state: State, ticket: Ticket, root: Path, stop: Stop, orders: Orders | None = None
) -> Parent:
    settings = ticket.settings({"MODELMILL_HOME": str(root / "home")}, root)
    return Parent(state, ticket, settings, stop, (ConnectionError,), orders)


def test_each_queue_is_asked_for_what_its_workers_may_do(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    stop = Stop()
    hands = Hands(stop, good=frozenset({"engine:fake"}), bad=frozenset({"engine:other"}))
    with state:
        parent_of(state, ticket, tmp_path, stop).supervise(ticket, hands)
        assert hands.asked == {"good": 2, "bad": 0}
        assert state.events(ticket.sweep, kind=Kind.NOTICE) == []


def test_what_nobody_alive_can_build_is_said(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    stop = Stop()
    hands = Hands(stop, bad=frozenset({"engine:other"}))
    with state:
        Parent(state, ticket, ticket.settings({}, tmp_path), stop).supervise(ticket, hands)
        (notice,) = state.events(ticket.sweep, kind=Kind.NOTICE)
    assert notice.data is not None
    assert notice.data[UNSERVED][0]["needs"] == ["engine:fake"]
    assert notice.data[UNSERVED][0]["count"] == 2


def test_slots_that_fail_at_once_are_told_once(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    stop = Quick()
    hands = Hands(stop, **SERVED)
    hands.failing = {"good": "no feed", "gone": "long ago"}
    rounds: list[None] = []

    def round_() -> None:
        rounds.append(None)
        if len(rounds) == 3:
            stop.ask()

    hands.then = round_
    with state:
        parent_of(state, ticket, tmp_path, stop).supervise(ticket, hands)
        (notice,) = state.events(ticket.sweep, kind=Kind.NOTICE)
        assert notice.data == {UNSERVED: [{"ends": "no feed", "needs": ["engine:fake"]}]}
        assert waiting(state, ticket.sweep).lines() == [
            "slots fail as soon as they begin: no feed",
            "  next: mend the machine with engine:fake; it is tried again now and then",
        ]


def test_a_sweep_is_busy_while_models_are_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, ticket = begun(tmp_path)
    stop, now = Quick(), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    hands = Hands(stop, **SERVED)

    def round_() -> None:
        now[0] += LATELY / 2
        if len(hands.busy) == 1:
            state.lease(ticket.sweep, Owner.here("me"), 600.0)
        if len(hands.busy) == 4:
            stop.ask()

    hands.then = round_
    with state:
        parent_of(state, ticket, tmp_path, stop).supervise(ticket, hands)
    assert hands.busy == [False, True, True, False]


def test_a_sweep_with_nothing_open_ends_at_once(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    hands = Hands(Stop())
    with state:
        state.cancel_open(ticket.sweep)
        while (lease := state.lease(ticket.sweep, Owner.here("me"), 60.0)) is not None:
            state.release(lease, done=True)
        Parent(state, ticket, ticket.settings({}, tmp_path), Stop()).supervise(ticket, hands)
    assert hands.asked == {}


def test_the_end_is_told_to_all_once(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    stop = Quick()
    hands = Hands(stop, **SERVED)
    hands.away = True
    with state:
        hands.away = False
        assert parent_of(state, ticket, tmp_path, stop).lead(ticket, hands) is Ended.OVER
        assert len(state.events(ticket.sweep, kind=Kind.INTERRUPTED)) == 1
    assert hands.done == ["dismiss"]


def test_who_was_stopped_by_others_does_not_tell_them(tmp_path: Path) -> None:
    """A resume may have begun meanwhile, and would take it for its own end."""
    state, ticket = begun(tmp_path)
    stop = Quick()
    hands = Hands(stop, **SERVED)
    hands.then = lambda: stop.ask(StoppedElsewhere({"why": "cancelled"}))
    with state:
        assert parent_of(state, ticket, tmp_path, stop).lead(ticket, hands) is Ended.OVER
        assert state.events(ticket.sweep, kind=Kind.INTERRUPTED) == []


def test_the_parent_that_began_last_leads(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    first, second = Quick(), Quick()
    hands, others = Hands(first, **SERVED), Hands(second, **SERVED)
    leads: list[Ended] = []

    def another() -> None:
        hands.then = lambda: None
        leads.append(parent_of(state, ticket, tmp_path, second).lead(ticket, others))

    hands.then = another
    with state:
        assert parent_of(state, ticket, tmp_path, first).lead(ticket, hands) is Ended.REPLACED
        assert state.events(ticket.sweep, kind=Kind.INTERRUPTED, after_id=0)[0].data == {
            "why": "cancelled",
            "exit_code": Exit.INTERRUPTED,
        }
    assert leads == [Ended.OVER]
    assert hands.done == []  # what waits is the other's


@pytest.mark.parametrize("killed", [False, True])
def test_a_parent_whose_worker_goes_has_another_one_started(killed: bool, tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    orders = Orders.make(tmp_path / "orders")
    hands = Hands(Stop(), **SERVED)

    def go() -> None:
        if killed:
            (orders.folder / "owner").write_text("1 another-start")
        else:
            orders.drain()

    hands.then = go
    with state:
        lead = parent_of(state, ticket, tmp_path, Quick(), orders)
        assert lead.lead(ticket, hands) is Ended.LEFT
        assert state.events(ticket.sweep, kind=Kind.INTERRUPTED) == []
    assert hands.done == ["hand over"]


def test_a_parent_that_cannot_hand_over_goes_all_the_same(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    orders = Orders.make(tmp_path / "orders")
    orders.drain()
    hands = Hands(Stop(), **SERVED)
    hands.away = True
    with state:
        lead = parent_of(state, ticket, tmp_path, Quick(), orders)
        assert lead.lead(ticket, hands) is Ended.LEFT
    assert hands.done == ["hand over"] * HAND_OVERS


def test_a_server_that_is_away_is_asked_again(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    hands = Hands(Stop(), **SERVED)
    hands.away = True

    class Returns(Quick):
        def wait(self, seconds: float) -> bool:
            hands.away = self.slept < 10
            return super().wait(seconds)

    stop = Returns()
    hands.then = stop.ask
    with state:
        parent_of(state, ticket, tmp_path, stop).supervise(ticket, hands)
    assert stop.slept > 10
    assert hands.asked == {"good": 2}


def test_a_sweep_that_was_ordered_again_is_not_ended_by_the_parent_before(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    stop = Quick()
    hands = Hands(stop, **SERVED)
    hands.then = lambda: stop.ask(StoppedElsewhere({}))
    with state:
        lead = parent_of(state, replace(ticket, newest={}), tmp_path, stop)
        DirectoryFeed(tmp_path / "home" / "feed")
        was, order = lead.begin()
        lead.lead(order, hands)
        parent_of(state, order, tmp_path, Quick()).begin()
        summary, index = lead.finish(was, order)
        assert (summary.open > 0, index) == (True, None)
        assert state.sweeps()[0].ended_at is None


def test_a_parent_leaves_a_mark_when_it_takes_the_lead(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    with state:
        stop = Quick()
        parent_of(state, ticket, tmp_path, stop).lead(ticket, Hands(stop, **SERVED))
        (notice,) = state.events(ticket.sweep, kind=Kind.NOTICE)
        assert (notice.data or {})[LEADS] == ticket.run
