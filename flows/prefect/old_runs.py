"""Runs of earlier sweeps on the server of a machine: killed ones are ended, old ones removed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Crashed

from flows.prefect.shown_run import FLOW_NAME, PROCESS
from machine.processes import owner_alive

_UNFINISHED = {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}
_MOST = 50
"""Runs at once; every sweep looks again."""


def crash_lost_runs(client: SyncPrefectClient) -> int:
    """Mark the runs of killed sweeps as crashed; returns how many there were.

    Works around Prefect (test_no_service_of_the_server_ends_lost_runs): it would always show
    them as running.
    """
    lost = [
        run.id
        for run in _runs(client, _UNFINISHED)
        if any(tag.startswith(PROCESS) and owner_alive(tag) is False for tag in run.tags)
    ]
    for run in lost:
        _crash(client, run)
    return len(lost)


def _crash(client: SyncPrefectClient, run: UUID) -> None:
    state: State[Any] = Crashed(message="its process is gone")
    tasks = client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [run]}}),
        task_run_filter=TaskRunFilter.model_validate(_UNFINISHED),
    )
    for task_run in tasks:
        client.set_task_run_state(task_run.id, state, force=True)
    client.set_flow_run_state(run, state, force=True)


def remove_old_runs(client: SyncPrefectClient, retention: float) -> int:
    """Remove the runs that ended that many seconds ago; returns how many there were.

    Works around Prefect (test_no_short_lived_server_removes_old_runs): the database would grow with
    every sweep.
    """
    before = datetime.fromtimestamp(time.time() - retention, UTC).isoformat()
    old = _runs(client, {"end_time": {"before_": before}})
    for run in old:
        _remove_artifacts(client, run.id)
        client.delete_flow_run(run.id)
    return len(old)


def _remove_artifacts(client: SyncPrefectClient, run: UUID) -> None:
    """Those of a run stay when it is deleted."""
    wanted: Any = {"artifacts": {"flow_run_id": {"any_": [str(run)]}}}
    while found := client.request("POST", "/artifacts/filter", json=wanted).json():
        for one in found:
            client.delete_artifact(one["id"])


def _runs(client: SyncPrefectClient, wanted: dict[str, Any]) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [FLOW_NAME]}}),
        flow_run_filter=FlowRunFilter.model_validate(wanted),
        limit=_MOST,
    )
