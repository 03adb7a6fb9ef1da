"""Prefect's automations of a fleet: mark the runs of lost machines as crashed, report failures.

Messages go to a notification block on the server: an existing one (Slack, Teams, mail, ...), given
by type and name, or a webhook whose address comes from the environment, so that no shell history
contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound

from flows.fleet.parent_runs import PARENT_FLOW
from flows.prefect.shown_run import NO_HEARTBEAT
from matrix.errors import UsageError

ADDRESS = "NOTIFY_URL"
"""Variable with the address of a webhook."""

WEBHOOK = "webhook"
_LOST = "modelmill-lost"
_FAILED = "modelmill-failed"
_PENDING = "modelmill-pending"
_HEARTBEAT_LIMIT = timedelta(seconds=90)
_PENDING_LIMIT = timedelta(hours=1)
"""Long, because a busy machine is slow; a night that never begins must not block the next ones."""


def crash_lost_runs(client: SyncPrefectClient) -> str:
    """Mark lost runs, whose heartbeats stopped, as crashed.

    Works around Prefect (test_no_service_of_the_server_ends_lost_runs): it would show a run whose
    machine is gone as running for ever. A run that lives says so (`ShownRun.show_alive`).
    """
    wanted = _crashes(_LOST, "heartbeat", _HEARTBEAT_LIMIT, NO_HEARTBEAT)
    return _put(client, wanted, "modelmill-zombie")


def crash_pending_runs(client: SyncPrefectClient) -> str:
    """Mark runs as crashed whose worker died before it began, where no parent or command does it.

    Works around Prefect (test_a_pending_run_is_never_given_to_another_worker).
    """
    message = "its worker died before it began"
    wanted = _crashes(_PENDING, "Pending", _PENDING_LIMIT, message)
    return _put(client, wanted, "modelmill-stuck")


def _crashes(name: str, after: str, within: timedelta, message: str) -> AutomationCore:
    """Mark a run as crashed when no event follows that one in time."""
    return AutomationCore(
        name=name,
        trigger=EventTrigger(
            after={f"prefect.flow-run.{after}"},
            expect={"prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            posture=Posture.Proactive,
            threshold=1,
            within=within,
        ),
        actions=[
            ChangeFlowRunState(
                name="Crashed", state=StateType.CRASHED, message=message, force=False
            )
        ],
    )


def notify_of_failures(client: SyncPrefectClient, block: str, environ: Mapping[str, str]) -> str:
    """Send a message whenever a sweep of a fleet fails; `block`: `webhook`, or TYPE/NAME of a block
    that sends notifications."""
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
    return _put(client, wanted)


def _put(client: SyncPrefectClient, wanted: AutomationCore, *formerly: str) -> str:
    """Create or update it. `formerly`: the name that an earlier modelmill gave it."""
    named = (client.read_automations_by_name(name) for name in (wanted.name, *formerly))
    found = next(filter(None, named), None)
    if found:
        client.update_automation(found[0].id, wanted)
    else:
        client.create_automation(wanted)
    return wanted.name


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
