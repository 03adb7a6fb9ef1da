"""`modelmill deploy`: the pools, deployments, schedule and messages of a fleet on its server.

Messages about failures go to a notification block on the server: an existing one (Slack, Teams,
mail, ...), given by type and name, or a webhook whose address comes from the environment, so that
no shell history contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    DeploymentScheduleCreate,
    WorkPoolCreate,
    WorkPoolUpdate,
)
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from pydantic import ValidationError

from flows.fleet import entrypoints
from flows.fleet.lead import NIGHTLY_TAG, PARENT_FLOW
from flows.fleet.worker import SWEEPS
from matrix.errors import UsageError
from matrix.needs import Words, to_text

_TEMPLATE = {
    "job_configuration": {"stream_output": True},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
ADDRESS = "NOTIFY_URL"
"""Variable with the address of a webhook."""
WEBHOOK = "webhook"
_FAILED = "modelmill-failed"
_FORMER = ("modelmill-lost", "modelmill-zombie", "modelmill-pending", "modelmill-stuck")


def deploy(pool: str) -> list[str]:
    """Create or update pools and deployments; returns the names of the latter."""
    with get_client(sync_client=True) as client:
        for name in (pool, pool + SWEEPS):
            _pool(client, name)
        _deployment(client, entrypoints.slot, pool, pool)
        _deployment(client, entrypoints.parent, pool, pool + SWEEPS, parameters={"pool": pool})
        remove_former(client)
    return [f"{PARENT_FLOW}/{pool}", f"{entrypoints.slot.name}/{pool}"]


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
            tags=[NIGHTLY_TAG + pool],
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


def remove_former(client: SyncPrefectClient) -> None:
    """Remove the automations of earlier versions, which took silent runs for dead."""
    for name in _FORMER:
        for found in client.read_automations_by_name(name):
            client.delete_automation(found.id)


def deploy_notification(block: str, environ: Mapping[str, str]) -> str:
    """Have a message sent whenever a sweep of a fleet fails; returns the name of the automation.

    `block`: `webhook`, or TYPE/NAME of a block that sends notifications.
    """
    with get_client(sync_client=True) as client:
        document = _webhook(environ) if block == WEBHOOK else _block(client, block)
        wanted = AutomationCore(
            name=_FAILED,
            trigger=EventTrigger(
                expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
                match_related=ResourceSpecification(
                    {"prefect.resource.role": "flow", "prefect.resource.name": PARENT_FLOW}
                ),
                posture=Posture.Reactive,
                threshold=1,
            ),
            actions=[
                SendNotification(
                    block_document_id=document,
                    subject="modelmill {{ flow_run.name }}: {{ flow_run.state.name }}",
                    body="{{ flow_run.state.message }}\n{{ flow_run|ui_url }}",
                )
            ],
        )
        if found := client.read_automations_by_name(_FAILED):
            client.update_automation(found[0].id, wanted)
        else:
            client.create_automation(wanted)
    return _FAILED


def _webhook(environ: Mapping[str, str]) -> UUID:
    address = environ.get(ADDRESS, "")
    if not address.startswith(("http://", "https://")):
        raise UsageError(
            f"{ADDRESS} does not hold the address of a webhook",
            hint=f"export {ADDRESS}=https://...",
        )
    block = CustomWebhookNotificationBlock(
        name="modelmill",
        url=cast("Any", address),  # kept on the server, encrypted
        method="POST",
        headers={},
        cookies={},
        json_data={"title": "{{subject}}", "text": "{{body}}"},
    )
    # Its type says coroutine, which it returns in async code only.
    return UUID(str(cast("Any", block.save)(_FAILED, overwrite=True)))


def _block(client: SyncPrefectClient, block: str) -> UUID:
    kind, _, name = block.partition("/")
    if not name:
        raise UsageError(
            f"'{block}' is not the name of a block",
            hint=f"give TYPE/NAME, for example slack-webhook/team, or {WEBHOOK}",
        )
    try:
        return UUID(str(client.read_block_document_by_name(name, kind).id))
    except ObjectNotFound:
        raise UsageError(
            f"the Prefect server has no block {block}", hint="see: prefect block ls"
        ) from None
