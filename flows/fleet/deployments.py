"""What Prefect has to know before a fleet can work: pools, deployments, automations, a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from prefect.automations import Automation
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.objects import (
    ConcurrencyLimitConfig,
    ConcurrencyLimitStrategy,
    StateType,
)
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

from flows.fleet import entrypoints
from flows.fleet.needs import Words, to_text
from flows.fleet.worker import SWEEPS

_ZOMBIE = "modelmill-zombie"
_SILENT = timedelta(seconds=90)


def deploy(pool: str) -> list[str]:
    """Make, or bring up to date, pools, deployments and the automation; returns their names."""
    with get_client(sync_client=True) as client:
        for name in (pool, pool + SWEEPS):
            _pool(client, name)
        _deployment(client, entrypoints.slot, pool, pool)
        _deployment(client, entrypoints.parent, pool, pool + SWEEPS, parameters={"pool": pool})
    _zombies()
    return [f"{entrypoints.PARENT_FLOW}/{pool}", f"{entrypoints.slot.name}/{pool}"]


def deploy_nightly(pool: str, cron: str, timezone: str, parameters: Mapping[str, Any]) -> str:
    """A scheduled sweep; a night is left out while the one before it still runs."""
    name = f"{pool}-nightly"
    with get_client(sync_client=True) as client:
        _deployment(
            client,
            entrypoints.parent,
            name,
            pool + SWEEPS,
            parameters={"pool": pool, **parameters},
            schedules=[
                DeploymentScheduleCreate(schedule=CronSchedule(cron=cron, timezone=timezone))
            ],
            concurrency_limit=1,
            concurrency_options=ConcurrencyLimitConfig(
                limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW
            ),
        )
    return f"{entrypoints.PARENT_FLOW}/{name}"


def announce(pool: str, queue: str, words: Words) -> None:
    """The queue of machines like this one, with what they have."""
    with get_client(sync_client=True) as client:
        text = to_text(words)
        try:
            client.create_work_queue(queue, work_pool_name=pool, description=text)
        except ObjectAlreadyExists:
            return  # its name is the digest of the description


def _pool(client: SyncPrefectClient, name: str) -> None:
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))


def _deployment(client: SyncPrefectClient, flow: Any, name: str, pool: str, **more: Any) -> None:
    """By module: every machine has the package, none has the folder of who deploys."""
    from prefect.utilities.callables import parameter_schema

    options = more.pop("concurrency_options", None)
    client.create_deployment(
        flow_id=client.create_flow(flow),
        name=name,
        entrypoint=f"flows.fleet.entrypoints:{flow.fn.__name__}",
        pull_steps=[],
        work_pool_name=pool,
        description=flow.description,
        parameter_openapi_schema=parameter_schema(flow).model_dump_for_openapi(),
        enforce_parameter_schema=True,
        concurrency_options=options,
        **more,
    )


def _zombies() -> None:
    """A run whose machine is gone says nothing; Prefect would show it running for ever."""
    wanted = Automation(
        name=_ZOMBIE,
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            posture=Posture.Proactive,
            threshold=1,
            within=_SILENT,
        ),
        actions=[
            ChangeFlowRunState(
                name="Crashed", state=StateType.CRASHED, message="no heartbeat", force=False
            )
        ],
    )
    try:
        # Both are coroutines only in async code, which their types do not say.
        cast("Any", Automation.read)(name=_ZOMBIE)
    except ValueError:
        cast("Any", wanted.create)()
