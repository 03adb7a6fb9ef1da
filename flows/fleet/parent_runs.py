"""The parent flow runs of a sweep, as the Prefect server sees them, and its errors as one line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException

from flows.fleet.run import FleetRun
from matrix.errors import Unusable, UsageError

PARENT_FLOW = "modelmill-fleet"
NIGHTLY = "nightly:"
"""How the tag of a nightly deployment begins, and so of its runs.

Each night looks itself whether another one is worked on (`flows.fleet.lead.earlier_night`).

Works around Prefect (test_a_concurrency_limit_is_decided_before_a_run_is_due): a worker takes a run
two minutes before its time, when the sweep of the night before may still end.

Works around Prefect (test_a_concurrency_limit_counts_the_runs_of_one_deployment): a parent that has
to leave its worker asks for another one, which is not a run of the nightly deployment.
"""
CANCELLED = "cancelled in Prefect"
AWAY = (httpx.HTTPError, PrefectException)
"""What Prefect's client raises while the server is away."""
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
UNFINISHED = {"state": {"type": {"not_any_": FINAL}}}


def check_deployed(pool: str) -> None:
    """Refuse a pool for which `modelmill deploy` has not been run."""
    try:
        with get_client(sync_client=True) as client:
            client.read_deployment_by_name(f"{PARENT_FLOW}/{pool}")
    except ObjectNotFound:
        raise UsageError(
            f"the Prefect server knows no fleet '{pool}'", hint=f"modelmill deploy --pool {pool}"
        ) from None


def submit(pool: str, run: FleetRun, request: str = "") -> None:
    """Start a parent for a recorded run; `request`: the name of a further one."""
    stamp = run.plan.stamp
    run_deployment(
        f"{PARENT_FLOW}/{pool}",
        parameters={"stamp": stamp, "sweep": run.sweep, "run": run.id, "pool": pool},
        timeout=0,
        tags=[f"stamp:{stamp}", f"sweep:{run.sweep}"],
        idempotency_key="-".join(filter(None, (f"{pool}-{run.sweep}-{run.id}", request))),
        as_subflow=False,  # a slot that asks for it ends before it
    )


def another_parent(pool: str, run: FleetRun, request: str) -> bool:
    """Start another parent for a run, unless the last one failed or was cancelled; `request` names
    it, so that two who ask start one. False: the server is away."""
    try:
        if not refused(run.sweep):
            submit(pool, run, request)
    except AWAY:
        return False
    return True


def refused(sweep: int) -> str:
    """Why no other parent is to follow the last one: what it said when it failed, or that somebody
    cancelled it; empty: nothing of that."""
    with get_client(sync_client=True) as client:
        newest = FlowRunSort.EXPECTED_START_TIME_DESC
        runs = runs_of(client, PARENT_FLOW, [f"sweep:{sweep}"], {}, sort=newest, limit=1)
    for state in (run.state for run in runs):
        if state is not None and state.is_failed():
            return state.message or "failed"
        if state is not None and (state.is_cancelled() or state.is_cancelling()):
            return CANCELLED
    return ""


def this_run() -> FlowRun | None:
    """The flow run around us."""
    context = FlowRunContext.get()
    return context.flow_run if context else None


def nightly_of(run: FlowRun | None) -> str:
    """The schedule that started a run; empty: none did."""
    tags = run.tags if run else []
    return next((tag.removeprefix(NIGHTLY) for tag in tags if tag.startswith(NIGHTLY)), "")


def runs_of(
    client: SyncPrefectClient, flow: str, tags: list[str], wanted: Mapping[str, Any], **page: Any
) -> list[FlowRun]:
    """The runs of a flow that have these tags and match the filter."""
    return client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [flow]}}),
        flow_run_filter=FlowRunFilter.model_validate({"tags": {"all_": tags}, **wanted}),
        **page,
    )


@contextmanager
def reached() -> Iterator[None]:
    """Turn the errors of Prefect's client into one line."""
    url = os.environ.get("PREFECT_API_URL", "")
    shown = httpx.URL(url).copy_with(userinfo=None) if url else "PREFECT_API_URL (not set)"
    try:
        yield
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        hint = "set PREFECT_API_AUTH_STRING or PREFECT_API_KEY" if code in {401, 403} else ""
        raise Unusable(f"the Prefect server at {shown} answers {code}", hint=hint) from None
    except ObjectNotFound:
        raise Unusable(
            f"the Prefect server at {shown} has no such pool", hint="run modelmill deploy first"
        ) from None
    except (httpx.HTTPError, RuntimeError) as error:
        raise Unusable(
            f"the Prefect server at {shown} cannot be reached: {error}",
            hint="start it, or check PREFECT_API_URL",
        ) from None
