"""What is said of runs whose process the server has lost sight of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.prefect.old_runs import crash_lost_runs, remove_old_runs
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
