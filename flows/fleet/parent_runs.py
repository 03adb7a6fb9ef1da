"""The parent flow runs of a sweep, as the Prefect server sees them, and its errors as one line."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter, WorkerFilter
from prefect.client.schemas.objects import FlowRun, WorkerStatus
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException

from flows.fleet.failed_starts import PendingRuns
from flows.fleet.run import FleetRun
from matrix.errors import Unusable, UsageError

PARENT_FLOW = "modelmill-fleet"
NIGHTLY = "nightly:"
"""How the tag of a nightly deployment begins, and so of its runs.

Each night looks itself whether another one leads.

Works around Prefect (test_a_concurrency_limit_is_decided_before_a_run_is_due): a worker takes a run
two minutes before its time, when the sweep of the night before may still end.

Works around Prefect (test_a_concurrency_limit_counts_the_runs_of_one_deployment): a parent that has
to leave its worker asks for another one, which is not a run of the nightly deployment. The tag is
handed on to it.
"""
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


def submit(pool: str, run: FleetRun, again: int = 0) -> UUID:
    """Start a parent for a recorded run, or another one; returns its flow run."""
    stamp = run.plan.stamp
    with get_client(sync_client=True) as client:
        last = _last(client, run.sweep)
    made: Any = run_deployment(
        f"{PARENT_FLOW}/{pool}",
        parameters={"stamp": stamp, "sweep": run.sweep, "run": run.id, "pool": pool},
        timeout=0,
        tags=[f"stamp:{stamp}", f"sweep:{run.sweep}", *nightly_tags(last)],
        idempotency_key=f"{pool}-{run.sweep}-{run.id}" + (f"-{again}" if again else ""),
    )
    return UUID(str(made.id))


@dataclass(slots=True)
class ParentRuns:
    """The parents of a sweep: the one that was submitted, and any that replaces it."""

    pool: str
    submitted: UUID
    run: FleetRun
    _pending: PendingRuns
    _asked: int = 0
    """Parents that were asked for in place of one that has not begun."""
    said: str = ""
    """Why the last one failed, once all have ended."""

    def ended(self) -> bool:
        """Whether the submitted parent ended and no other one leads or waits.

        If all parents that wait have not begun in time, another worker is asked for one: of two
        that begin after all, the later one leads.
        """
        try:
            with get_client(sync_client=True) as client:
                tags = [f"sweep:{self.run.sweep}"]
                unfinished = runs_of(client, PARENT_FLOW, tags, UNFINISHED)
                state = client.read_flow_run(self.submitted).state
                overdue = [self._pending.overdue(run) for run in unfinished]
                if overdue and all(overdue):
                    self._asked += 1
                    submit(self.pool, self.run, again=self._asked)
                over = not unfinished and state is not None and state.is_final()
                last = _last(client, self.run.sweep) if over else None
            if last is not None and last.state is not None and last.state.is_failed():
                self.said = last.state.message or ""
            return over
        except httpx.HTTPError:
            return False  # the server is away; the sweep is not


def status_lines(sweep: int, stamp: str, hosts: Collection[str]) -> list[str]:
    """What Prefect knows of a sweep's last parent and of the workers alive, for `status`.

    `hosts`: where leases are held, whatever Prefect knows.
    """
    if not os.environ.get("PREFECT_API_URL"):
        return []
    try:
        with get_client(sync_client=True) as client:
            return list(_status_lines(client, sweep, stamp, hosts))
    except (httpx.HTTPError, PrefectException, RuntimeError) as error:
        return [f"the Prefect server does not answer: {type(error).__name__}"]


def _status_lines(
    client: SyncPrefectClient, sweep: int, stamp: str, hosts: Collection[str]
) -> Iterator[str]:
    run = _last(client, sweep)
    if run is None or run.state is None:
        yield "Prefect knows no parent of this sweep"
        return
    if run.state.is_final():
        yield f"its parent ended ({run.state.name}): modelmill resume {stamp} --fleet"
    elif not run.state.is_running():
        yield f"its parent is {run.state.name}; {_alive(client, str(run.work_pool_name), hosts)}"
    yield _alive(client, str(run.parameters.get("pool", "")), hosts)


def _alive(client: SyncPrefectClient, pool: str, hosts: Collection[str]) -> str:
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
    if not names and hosts:
        return f"no worker of {pool} asks for work, but slots work on {', '.join(sorted(hosts))}"
    return f"workers alive in {pool}: {names or 'none, start modelmill worker'}"


def this_run() -> FlowRun | None:
    """The flow run around us."""
    context = FlowRunContext.get()
    return context.flow_run if context else None


def nightly_tags(run: FlowRun | None) -> list[str]:
    """The tag that identifies later parents of this nightly sweep; empty: not a nightly one."""
    return [tag for tag in run.tags if tag.startswith(NIGHTLY)] if run else []


def earlier_night(client: SyncPrefectClient, run: FlowRun) -> str | None:
    """The name of a parent that led the sweep of an earlier night when this one was due.

    Not whether one leads now: this one may begin late, because its worker was leading that one. The
    scheduler makes the runs of the nights to come long before they are due.
    """
    ours, tags = run.expected_start_time, nightly_tags(run)
    others = {"id": {"not_any_": [str(run.id)]}}
    unfinished = runs_of(client, PARENT_FLOW, tags, {**others, **UNFINISHED})
    # Asked for by a parent that had to leave its worker: not due at a time of its own.
    earlier = [one for one in unfinished if one.deployment_id != run.deployment_id]
    earlier += [one for one in unfinished if _is_due(one, ours)]
    if ours is not None:
        since = {**others, "end_time": {"after_": ours.isoformat()}}
        ended = runs_of(client, PARENT_FLOW, tags, since)
        earlier += [one for one in ended if one.start_time is not None and _is_due(one, ours)]
    return next((one.name for one in earlier), None)


def _is_due(run: FlowRun, at: datetime | None) -> bool:
    due = run.expected_start_time
    return due is None or at is None or due <= at


def _last(client: SyncPrefectClient, sweep: int) -> FlowRun | None:
    """The parent that led the sweep last, or is to lead it."""
    newest = FlowRunSort.EXPECTED_START_TIME_DESC
    found = runs_of(client, PARENT_FLOW, [f"sweep:{sweep}"], {}, sort=newest, limit=1)
    return found[0] if found else None


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
