"""What the parent makes of a Prefect server: one in memory here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Cancelled, Completed, Failed, Pending, Running, Scheduled

from flows.fleet import slot_runs as module
from flows.fleet.slot_runs import SILENT, SlotRuns
from matrix.needs import to_text

WORDS = frozenset({"engine:fake"})
DATE = "Wed, 18 Nov 2026 15:00:00 GMT"
LIMIT = 90.0
OURS = {"stamp": "s1", "sweep": 7, "run": 3}


@dataclass
class Server:
    """As much of one as slot runs ask for."""

    runs: list[Any] = field(default_factory=list)
    queues: list[Any] = field(default_factory=list)
    submitted: list[dict[str, Any]] = field(default_factory=list)

    def hello(self) -> Any:
        return SimpleNamespace(headers={"Date": DATE})

    def read_work_queues(self, work_pool_name: str) -> list[Any]:
        return self.queues

    def read_flow_runs(
        self,
        flow_filter: Any,
        flow_run_filter: Any,
        limit: int,
        offset: int = 0,
        sort: FlowRunSort | None = None,
    ) -> list[Any]:
        types, tags = flow_run_filter.state.type, set(flow_run_filter.tags.all_)
        found = [
            run
            for run in self.runs
            if run.state.type in (types.any_ or set(StateType) - set(types.not_any_))
            and tags <= set(run.tags)
        ]
        if sort is FlowRunSort.END_TIME_DESC:
            found.reverse()
        return found[offset : offset + limit]

    def set_flow_run_state(self, run: int, state: Any) -> None:
        next(one for one in self.runs if one.id == run).state = state

    def add(self, queue: str, state: Any, parameters: Mapping[str, Any] = OURS) -> Any:
        tags = [f"sweep:{parameters['sweep']}"]
        run = SimpleNamespace(
            id=len(self.runs),
            state=state,
            work_queue_name=queue,
            parameters=dict(parameters),
            tags=tags,
            start_time=None,
            end_time=None,
            total_run_time=None,
        )
        self.runs.append(run)
        return run

    def run_deployment(self, name: str, **options: Any) -> Any:
        self.submitted.append({"name": name, **options})
        return self.add(options["work_queue_name"], Scheduled(), options["parameters"])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(module, "run_deployment", made.run_deployment)
    return made


@pytest.fixture
def slots(server: Server) -> SlotRuns:
    return SlotRuns(cast("SyncPrefectClient", server), "mill", OURS, ["stamp:s1", "sweep:7"], LIMIT)


def waiting(server: Server, queue: str = "q") -> int:
    return sum(run.state.is_scheduled() and run.work_queue_name == queue for run in server.runs)


def test_nobody_can_poll_while_the_server_is_away(
    slots: SlotRuns, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    polled = parsedate_to_datetime(DATE)
    queue = SimpleNamespace(name="q", last_polled=polled, description=to_text(WORDS))
    server.queues = [queue]
    assert slots.served_queues() == {"q": WORDS}
    now += 10 * SILENT  # it does not answer, and then the parent asks before the workers do
    assert slots.served_queues() == {"q": WORDS}
    for _round in range(30):
        now += SILENT / 20
        found = slots.served_queues()
    assert found == {}


@pytest.mark.parametrize(("demand", "submitted"), [(0, 0), (1, 1), (2, 2), (50, 2)])
def test_a_few_wait_but_no_more_than_there_is_work_for(
    demand: int, submitted: int, slots: SlotRuns, server: Server
) -> None:
    for _round in range(3):
        slots.refresh()
        slots.fill("q", demand, 0)
    assert waiting(server) == submitted


def test_as_many_wait_as_work_for_any_of_them_may_die(slots: SlotRuns, server: Server) -> None:
    for _run in range(9):  # whatever Prefect says of those that began
        server.add("q", Running())
    server.add("q", Pending())
    slots.refresh()
    slots.fill("q", 100, 5)
    slots.fill("other", 100, 1)
    assert (waiting(server), waiting(server, "other")) == (4, 2)


def test_a_slot_that_ended_is_replaced(slots: SlotRuns, server: Server) -> None:
    slots.refresh()
    slots.fill("q", 9, 0)
    for run in server.runs:
        run.state = Completed()
    slots.refresh()
    slots.fill("q", 9, 0)
    assert len(server.runs) == 4


def fail(server: Server, message: str) -> None:
    """Every slot that waits begins, and fails at once."""
    for run in server.runs:
        if run.state.is_scheduled():
            run.state = Failed(message=message)
            run.start_time = run.end_time = parsedate_to_datetime(DATE)


def test_slots_that_fail_at_once_are_tried_with_pauses(slots: SlotRuns, server: Server) -> None:
    for _round in range(20):
        slots.refresh()
        slots.fill("q", 9, 0)
        slots.fill("other", 1, 0)
        fail(server, "no module named onnx")
    assert len([one for one in server.runs if one.work_queue_name == "q"]) == 3
    assert slots.failing() == {"other": "no module named onnx", "q": "no module named onnx"}


def test_one_broken_machine_does_not_hold_up_the_others_of_its_queue(
    slots: SlotRuns, server: Server
) -> None:
    for _slot in range(12):
        run = server.add("q", Failed(message="away"))
        run.start_time = run.end_time = parsedate_to_datetime(DATE) - timedelta(seconds=29)
    server.add("q", Running())
    slots.refresh()
    slots.fill("q", 9, 0)
    assert waiting(server) == 0
    for run in server.runs[:12]:
        run.end_time -= timedelta(seconds=2)
    slots.refresh()
    slots.fill("q", 9, 0)
    assert waiting(server) == 1
    assert slots.failing() == {"q": "away"}


def test_a_slot_that_has_not_begun_for_long_makes_room_and_is_left_alone(
    slots: SlotRuns, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker may be dead, or the machine only busy: then there is one slot more."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    taken = [server.add("q", Pending()) for _slot in range(2)]
    slots.refresh()
    now += LIMIT
    taken[1].state = Running()
    slots.refresh()
    slots.fill("q", 9, 0)
    assert waiting(server) == 1
    now += 1
    slots.refresh()
    assert taken[0].state.is_pending()
    slots.fill("q", 9, 0)
    assert waiting(server) == 2
    taken[0].state = Running()
    slots.refresh()
    slots.fill("q", 9, 0)
    assert waiting(server) == 2
    slots.cancel_waiting()
    assert [run.state.is_running() for run in taken] == [True, True]


def test_a_queue_that_recovers_is_filled_as_before(slots: SlotRuns, server: Server) -> None:
    for _slot in range(3):
        run = server.add("q", Failed(message="away"))
        run.start_time = run.end_time = parsedate_to_datetime(DATE) - timedelta(seconds=60)
    slots.refresh()
    slots.fill("q", 9, 0)
    assert (waiting(server), slots.failing()) == (1, {"q": "away"})
    (run,) = [one for one in server.runs if one.state.is_scheduled()]
    run.state, run.end_time = Completed(), parsedate_to_datetime(DATE)
    slots.refresh()
    slots.fill("q", 9, 0)
    assert (waiting(server), slots.failing()) == (2, {})


def test_a_new_parent_finds_the_slots_of_the_one_before(slots: SlotRuns, server: Server) -> None:
    server.add("q", Scheduled())
    server.add("q", Scheduled())
    server.add("q", Running())
    slots.refresh()
    slots.fill("q", 9, 0)
    assert server.submitted == []


def test_slots_of_an_older_run_are_not_counted_but_cancelled(
    slots: SlotRuns, server: Server
) -> None:
    """They would see the end of that run and go."""
    old = server.add("q", Scheduled(), {**OURS, "run": 1})
    foreign = server.add("q", Scheduled(), {**OURS, "sweep": 8})
    slots.refresh()
    slots.fill("q", 9, 0)
    assert len(server.submitted) == 2
    busy = server.add("q", Running())
    slots.cancel_waiting()
    assert old.state.type == Cancelled().type
    assert foreign.state.is_scheduled()
    assert busy.state.is_running()
    assert waiting(server) == 1


def test_hundreds_of_slots_are_read_page_by_page(slots: SlotRuns, server: Server) -> None:
    for _slot in range(module._PAGE + 5):
        server.add("q", Scheduled())
    slots.cancel_waiting()
    assert waiting(server) == 0


def test_slots_are_due_by_the_clock_of_the_server(slots: SlotRuns, server: Server) -> None:
    slots.refresh()
    slots.fill("q", 1, 0)
    (slot,) = server.submitted
    assert slot["scheduled_time"].isoformat() == "2026-11-18T15:00:00+00:00"
    assert (slot["name"], slot["work_queue_name"]) == ("modelmill-slot/mill", "q")
    assert slot["as_subflow"]


def test_another_parent_is_not_the_child_of_this_one(slots: SlotRuns, server: Server) -> None:
    slots.start_another_parent()
    (parent,) = server.submitted
    assert parent["name"] == "modelmill-fleet/mill"
    assert parent["parameters"] == {**OURS, "pool": "mill"}
    assert not parent["as_subflow"]


def queue(name: str, polled: object, words: str | None = to_text(WORDS)) -> Any:
    return SimpleNamespace(name=name, last_polled=polled, description=words)


def test_a_queue_is_served_while_its_polls_go_on(
    slots: SlotRuns, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by the change of the time, not by the time: whose clock is right does not matter."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    server.queues = [queue("alive", 1), queue("dead", 1), queue("never", None), queue("x", 1, "?")]
    assert slots.served_queues() == {"alive": WORDS, "dead": WORDS}
    now += SILENT - 1
    server.queues[0] = queue("alive", 2)
    assert slots.served_queues() == {"alive": WORDS, "dead": WORDS}
    now += 2
    assert slots.served_queues() == {"alive": WORDS}
    server.queues[1] = queue("dead", 2)
    assert slots.served_queues() == {"alive": WORDS, "dead": WORDS}
