"""What the parent asks for while work remains, and what it says when nobody can do it."""

from __future__ import annotations

from pathlib import Path

from flows.fleet.needs import Words
from flows.fleet.parent import UNSERVED, Parent
from flows.stop import Stop
from state.owner import Owner
from state.records import Kind
from tests.unit.flows.fleet.test_ticket import begun


class Hands:
    """Served queues as told; ends the sweep after a round."""

    def __init__(self, stop: Stop, **queues: Words) -> None:
        self.stop, self.served = stop, queues
        self.asked: dict[str, int] = {}

    def queues(self) -> dict[str, Words]:
        return self.served

    def look(self) -> None:
        """Nothing runs."""

    def fill(self, queue: str, demand: int) -> None:
        self.asked[queue] = demand
        self.stop.ask()

    def dismiss(self) -> None:
        raise ConnectionError("the server is away")


def test_each_queue_is_asked_for_what_its_workers_may_do(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    stop = Stop()
    hands = Hands(stop, good=frozenset({"engine:fake"}), bad=frozenset({"engine:other"}))
    with state:
        lead = Parent(state, ticket, ticket.settings({}, tmp_path), stop, (ConnectionError,))
        lead.supervise(ticket, hands)
        assert hands.asked == {"good": 2, "bad": 0}
        assert state.events(ticket.sweep, kind=Kind.NOTICE) == []
        lead.dismiss(hands)


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


def test_a_sweep_with_nothing_open_ends_at_once(tmp_path: Path) -> None:
    state, ticket = begun(tmp_path)
    hands = Hands(Stop())
    with state:
        state.cancel_open(ticket.sweep)
        while (lease := state.lease(ticket.sweep, Owner.here("me"), 60.0)) is not None:
            state.release(lease, done=True)
        Parent(state, ticket, ticket.settings({}, tmp_path), Stop()).supervise(ticket, hands)
    assert hands.asked == {}
