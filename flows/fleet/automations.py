"""Prefect's automations of a fleet: runs of lost machines are ended, failures are told.

Those who are told are a block on the server: one that exists (Slack, Teams, mail, ...), named by
its type and name, or a webhook whose address comes from the environment, so that it stands in no
history.
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

from flows.prefect.names import PARENT_FLOW
from matrix.errors import UsageError

ADDRESS = "NOTIFY_URL"
"""Variable with the address of a webhook."""

WEBHOOK = "webhook"
_ZOMBIE = "modelmill-zombie"
_FAILED = "modelmill-failed"
_STUCK = "modelmill-stuck"
_SILENT = timedelta(seconds=90)
_UNBEGUN = timedelta(seconds=300)


def bury_the_dead(client: SyncPrefectClient) -> str:
    """A run whose machine is gone says nothing; Prefect would show it running for ever."""
    return _put(client, _crashes(_ZOMBIE, "heartbeat", _SILENT, "no heartbeat"))


def end_limbo(client: SyncPrefectClient) -> str:
    """A run whose worker died before it began; who follows or leads the sweep is faster."""
    return _put(client, _crashes(_STUCK, "Pending", _UNBEGUN, "its worker died before it began"))


def _crashes(name: str, after: str, within: timedelta, message: str) -> AutomationCore:
    """A run of which nothing is heard for so long after an event is marked as crashed."""
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


def tell_failures(client: SyncPrefectClient, who: str, environ: Mapping[str, str]) -> str:
    """Send a message whenever a sweep of a fleet fails; `who`: `webhook`, or TYPE/NAME of a block
    that sends notifications."""
    block = _webhook(environ) if who == WEBHOOK else _block(client, who)
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
                block_document_id=block,
                subject="modelmill {{ flow_run.name }}: {{ flow_run.state.name }}",
                body="{{ flow_run.state.message }}\n{{ flow_run|ui_url }}",
            )
        ],
    )
    return _put(client, wanted)


def _put(client: SyncPrefectClient, wanted: AutomationCore) -> str:
    """Make it, or bring it up to date."""
    found = client.read_automations_by_name(wanted.name)
    if found:
        client.update_automation(found[0].id, wanted)
    else:
        client.create_automation(wanted)
    return wanted.name


def _webhook(environ: Mapping[str, str]) -> UUID:
    address = environ.get(ADDRESS, "")
    if not address.startswith(("http://", "https://")):
        raise UsageError(
            f"{ADDRESS} holds no address of a webhook", hint=f"export {ADDRESS}=https://..."
        )
    block = CustomWebhookNotificationBlock(
        name="modelmill",
        url=cast("Any", address),  # kept on the server, encrypted
        method="POST",
        headers={},
        cookies={},
        json_data={"title": "{{subject}}", "text": "{{body}}"},
    )
    # A coroutine only in async code, which its type does not say.
    return UUID(str(cast("Any", block.save)(_FAILED, overwrite=True)))


def _block(client: SyncPrefectClient, who: str) -> UUID:
    kind, _, name = who.partition("/")
    if not name:
        raise UsageError(
            f"'{who}' names no block",
            hint=f"give TYPE/NAME, for example slack-webhook/team, or {WEBHOOK}",
        )
    try:
        return UUID(str(client.read_block_document_by_name(name, kind).id))
    except ObjectNotFound:
        raise UsageError(
            f"the Prefect server has no block {who}", hint="see: prefect block ls"
        ) from None
