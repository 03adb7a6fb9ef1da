"""What Prefect says of a sweep's parent and of the workers alive; `modelmill status` asks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter, WorkerFilter
from prefect.client.schemas.objects import FlowRun, WorkerStatus
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException

from flows.prefect.names import PARENT_FLOW


def reports(sweep: int, stamp: str) -> list[str]:
    """Lines about the last parent of a sweep and who could work for it."""
    if not os.environ.get("PREFECT_API_URL"):
        return []
    try:
        with get_client(sync_client=True) as client:
            return list(_lines(client, sweep, stamp))
    except (httpx.HTTPError, PrefectException, RuntimeError) as error:
        return [f"the Prefect server does not answer: {type(error).__name__}"]


def _lines(client: SyncPrefectClient, sweep: int, stamp: str) -> Iterator[str]:
    run = last_parent(client, sweep)
    if run is None or run.state is None:
        yield "Prefect knows no parent of this sweep"
        return
    pool = str(run.parameters.get("pool", ""))
    if run.state.is_final():
        yield f"its parent ended ({run.state.name}): modelmill resume {stamp} --fleet"
    elif not run.state.is_running():
        yield f"its parent is {run.state.name}; {_alive(client, str(run.work_pool_name))}"
    yield _alive(client, pool)


def last_parent(client: SyncPrefectClient, sweep: int) -> FlowRun | None:
    """The flow run that led a sweep last, or is to lead it."""
    tagged = {"tags": {"all_": [f"sweep:{sweep}"]}}
    found = client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [PARENT_FLOW]}}),
        flow_run_filter=FlowRunFilter.model_validate(tagged),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=1,
    )
    return found[0] if found else None


def _alive(client: SyncPrefectClient, pool: str) -> str:
    try:
        online = {"status": {"any_": [WorkerStatus.ONLINE.value]}}
        workers = client.read_workers_for_work_pool(
            pool, worker_filter=WorkerFilter.model_validate(online)
        )
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.NOT_FOUND:
            raise
        return f"there is no pool {pool}: modelmill deploy"
    names = ", ".join(sorted(worker.name for worker in workers))
    return f"workers alive in {pool}: {names or 'none, start modelmill worker'}"
