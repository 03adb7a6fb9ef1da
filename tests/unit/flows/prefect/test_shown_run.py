"""How runs end on a server, and what is said of those whose process it has lost sight of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.observe.failures import FailureGroup
from flows.observe.summary import Summary
from flows.prefect.old_runs import crash_lost_runs, remove_old_runs
from flows.prefect.shown_run import artifact_key, ended
from machine.processes import claim
from matrix.errors import Exit, MillError
from matrix.status import FailureClass
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

    artifacts = ["a", "b"]

    def request(method: str, path: str, json: Any = None) -> Any:
        assert (method, path) == ("POST", "/artifacts/filter")
        assert json == {"artifacts": {"flow_run_id": {"any_": ["1"]}}}
        return SimpleNamespace(json=lambda: [{"id": one} for one in artifacts])

    client = SimpleNamespace(
        read_flow_runs=found,
        delete_flow_run=removed.append,
        delete_artifact=artifacts.remove,
        request=request,
    )
    assert remove_old_runs(cast("SyncPrefectClient", client), 86_400.0 * 30) == 1
    assert (removed, artifacts) == ([1], [])


PLANNED = Summary("s1", "feed", {"published": 3}, (), (), 0)
FAILED = FailureGroup(
    FailureClass.QUANTIZE, "no scale", alike=True, hint="change it", cells=("m:t@qnn_npu",),
    exports=(), models=("m:t",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "why", "name", "told"),
    [
        (Exit.OK, None, "Completed", "sweep s1: 3 cells: 3 published"),
        (Exit.CELLS_FAILED, None, "Failed", "QUANTIZE  m:t@qnn_npu: no scale"),
        (Exit.HOST_CANNOT_PUBLISH, MillError("log in"), "Failed", "log in\nsweep s1"),
        (Exit.INTERRUPTED, None, "Cancelled", "modelmill resume s1 continues it"),
        (Exit.UNUSABLE, OSError("gone"), "Failed", "OSError: gone"),
    ],
)
def test_a_flow_run_ends_as_the_command_does(
    code: Exit, why: Exception | None, name: str, told: str
) -> None:
    summary = replace(PLANNED, groups=(FAILED,)) if code is Exit.CELLS_FAILED else PLANNED
    state = ended(summary, code, why)
    assert state.name == name
    assert told in (state.message or "")


def test_the_artifacts_of_a_catalog_share_their_keys() -> None:
    assert artifact_key("/srv/c/Big Models.toml", "summary") == "modelmill-big-models-summary"
    assert artifact_key(r"C:\c\nightly.toml", "outcomes") == "modelmill-nightly-outcomes"
    assert artifact_key("demo", "progress") == "modelmill-demo-progress"
    assert artifact_key("", "progress") == "modelmill-sweep-progress"
