"""`modelmill deploy`: the pools, deployments, automations and schedule of a fleet on its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    DeploymentScheduleCreate,
    WorkPoolCreate,
    WorkPoolUpdate,
)
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from pydantic import ValidationError

from flows.fleet import entrypoints
from flows.fleet.automations import notify_of_failures, remove_former
from flows.fleet.parent_runs import NIGHTLY, PARENT_FLOW
from flows.fleet.worker import SWEEPS
from matrix.errors import UsageError
from matrix.needs import Words, to_text

_TEMPLATE = {
    "job_configuration": {"stream_output": True},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}


def deploy(pool: str) -> list[str]:
    """Create or update pools and deployments; returns the names of the latter."""
    with get_client(sync_client=True) as client:
        for name in (pool, pool + SWEEPS):
            _pool(client, name)
        _deployment(client, entrypoints.slot, pool, pool)
        _deployment(client, entrypoints.parent, pool, pool + SWEEPS, parameters={"pool": pool})
        remove_former(client)
    return [f"{PARENT_FLOW}/{pool}", f"{entrypoints.slot.name}/{pool}"]


def deploy_notification(block: str, environ: Mapping[str, str]) -> str:
    """Have messages sent about failed sweeps; returns the name of the automation."""
    with get_client(sync_client=True) as client:
        return notify_of_failures(client, block, environ)


def deploy_nightly(pool: str, cron: str, timezone: str, parameters: Mapping[str, Any]) -> str:
    """Schedule a sweep; the parent leaves a night out (`earlier_night`)."""
    name = f"{pool}-nightly"
    try:
        schedule = CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        raise UsageError(f"'{cron}' ({timezone}): {error.errors()[0]['msg']}") from None
    with get_client(sync_client=True) as client:
        _deployment(
            client,
            entrypoints.parent,
            name,
            pool + SWEEPS,
            parameters={"pool": pool, **parameters},
            tags=[NIGHTLY + pool],
            schedules=[DeploymentScheduleCreate(schedule=schedule)],
        )
    return f"{PARENT_FLOW}/{name}"


def announce(pool: str, queue: str, words: Words) -> None:
    """Create the queue of machines like this one, with what they announce."""
    with get_client(sync_client=True) as client:
        text = to_text(words)
        try:
            client.create_work_queue(queue, work_pool_name=pool, description=text)
        except ObjectAlreadyExists:
            return  # its name is the digest of the description


def _pool(client: SyncPrefectClient, name: str) -> None:
    """A pool whose runs take no command, environment or folder; workers ignore these anyway."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(name=name, type="process", base_job_template=_TEMPLATE)
        )
    else:
        client.update_work_pool(name, WorkPoolUpdate(base_job_template=_TEMPLATE))


def _deployment(client: SyncPrefectClient, flow: Any, name: str, pool: str, **more: Any) -> None:
    """Deploy a flow by its module: every machine has the package, none this working folder."""
    from prefect.utilities.callables import parameter_schema

    # Works around Prefect (test_the_form_of_a_flow_takes_unknown_parameters): a misspelt parameter
    # would be refused when the run starts, not when it is submitted.
    form = {**parameter_schema(flow).model_dump_for_openapi(), "additionalProperties": False}
    client.create_deployment(
        flow_id=client.create_flow(flow),
        name=name,
        entrypoint=f"modelmill.fleet:{flow.fn.__name__}",
        pull_steps=[],
        work_pool_name=pool,
        description=flow.description,
        parameter_openapi_schema=form,
        enforce_parameter_schema=True,
        **more,
    )
