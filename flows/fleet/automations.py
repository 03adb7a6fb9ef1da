"""Prefect's automation of a fleet: report failures.

Messages go to a notification block on the server: an existing one (Slack, Teams, mail, ...), given
by type and name, or a webhook whose address comes from the environment, so that no shell history
contains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound

from flows.fleet.parent_runs import PARENT_FLOW
from matrix.errors import UsageError

ADDRESS = "NOTIFY_URL"
"""Variable with the address of a webhook."""

WEBHOOK = "webhook"
_FAILED = "modelmill-failed"
_FORMER = ("modelmill-lost", "modelmill-zombie", "modelmill-pending", "modelmill-stuck")


def remove_former(client: SyncPrefectClient) -> None:
    """Remove the automations of earlier versions, which took silent runs for dead."""
    for name in _FORMER:
        for found in client.read_automations_by_name(name):
            client.delete_automation(found.id)


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


def _put(client: SyncPrefectClient, wanted: AutomationCore) -> str:
    """Create or update it."""
    if found := client.read_automations_by_name(wanted.name):
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
