"""What is said of runs whose process the server has lost sight of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.states import Cancelling, Completed, Crashed, Running

from flows.prefect.old_runs import crash_lost_runs, remove_old_runs
from flows.prefect.shown_run import NO_HEARTBEAT, ShownRun
from machine.processes import claim
from tests.machine.dead import NO_SUCH_PID


@dataclass
class Server:
    """Flow runs by their tags, each with one task run."""

    runs: dict[UUID, list[str]]
    crashed: list[UUID] = field(default_factory=list)

    def read_flow_runs(self, **_filters: Any) -> list[Any]:
        return [SimpleNamespace(id=run, tags=tags) for run, tags in self.runs.items()]

    def read_task_runs(self, flow_run_filter: Any, **_filters: Any) -> list[Any]:
        return [SimpleNamespace(id=run) for run in flow_run_filter.id.any_]

    def set_flow_run_state(self, run: UUID, state: Any, *, force: bool) -> None:
        assert state.is_crashed()
        self.crashed.append(run)

    set_task_run_state = set_flow_run_state


def test_runs_of_dead_processes_of_this_machine_are_crashed() -> None:
    scope, pid, started, random = claim().split("-")
    tags = {
        uuid4(): ["stamp:s1", f"process:{scope}-{NO_SUCH_PID}-{started}-{random}"],
        uuid4(): ["stamp:s2", f"process:{scope}-{pid}-1-{random}"],
        uuid4(): [f"process:{'0' * 12}-{NO_SUCH_PID}-{started}-{random}"],
        uuid4(): [f"process:{claim()}"],
        uuid4(): ["process:", f"stamp:{scope}-{NO_SUCH_PID}-{started}-{random}"],
    }
    server = Server(tags)
    dead = list(tags)[:2]
    assert crash_lost_runs(cast("SyncPrefectClient", server)) == 2
    assert server.crashed == [dead[0], dead[0], dead[1], dead[1]]


def test_runs_that_ended_long_ago_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 86_400.0 * 31)
    removed: list[int] = []

    def found(flow_run_filter: Any, **_filters: Any) -> list[Any]:
        days = {1: datetime(1970, 1, 1, tzinfo=UTC), 2: datetime(1970, 1, 3, tzinfo=UTC)}
        old = (run for run, at in days.items() if at <= flow_run_filter.end_time.before_)
        return [SimpleNamespace(id=run) for run in old]

    client = SimpleNamespace(read_flow_runs=found, delete_flow_run=removed.append)
    assert remove_old_runs(cast("SyncPrefectClient", client), 86_400.0 * 30) == 1
    assert removed == [1]


@dataclass
class OneRun:
    """A flow run of Prefect, and how often it was asked about."""

    state: Any
    asked: int = 0

    def read_flow_run(self, _run: UUID) -> Any:
        self.asked += 1
        return self

    def set_flow_run_state(self, _run: UUID, state: Any, *, force: bool) -> None:
        assert force  # Prefect refuses to let a run go on that has ended
        self.state = state


def test_a_living_run_that_was_taken_for_lost_is_shown_as_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    server = OneRun(Running())
    client = cast("SyncPrefectClient", server)
    shown = ShownRun("s", {}, "", uuid4())
    shown.show_alive(client)
    server.state = Crashed(message=NO_HEARTBEAT)
    shown.show_alive(client)
    assert (server.asked, server.state.is_crashed()) == (1, True)
    now += 5.0
    shown.show_alive(client)
    assert server.state.is_running()


@pytest.mark.parametrize(
    "state", [Cancelling(), Completed(), Crashed(message="Process exited with status code: -9")]
)
def test_what_others_say_of_a_run_stays(state: Any) -> None:
    server = OneRun(state)
    shown = ShownRun("s", {}, "", uuid4())
    shown.show_alive(cast("SyncPrefectClient", server))
    assert server.state is state


def test_a_run_that_only_shows_a_sweep_is_left_alone() -> None:
    server = OneRun(Crashed(message=NO_HEARTBEAT))
    ShownRun("s", {}, "").show_alive(cast("SyncPrefectClient", server))
    assert server.asked == 0
