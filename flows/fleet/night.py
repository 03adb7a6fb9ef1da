"""One night at a time, also where the sweep of the night before has gone to another parent.

Prefect's limit counts the runs of the nightly deployment. A parent that has to leave its worker
asks for another one, which runs outside of it; a tag that is handed on tells where it comes from.
"""

from __future__ import annotations

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.context import FlowRunContext

from flows.fleet.lookout import last_parent
from flows.prefect.names import PARENT_FLOW

NIGHTLY = "nightly"
"""Tag of the deployment, and so of its runs."""
_FROM = "night:"
_FINAL = ["COMPLETED", "FAILED", "CANCELLED", "CRASHED"]


def night_tags() -> list[str]:
    """Of the flow run around us, if it belongs to a nightly sweep: what is handed on."""
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None or NIGHTLY not in run.tags:
        return []
    known = [tag for tag in run.tags if tag.startswith(_FROM)]
    return [NIGHTLY, *(known or [f"{_FROM}{run.deployment_id}"])]


def handed_on(client: SyncPrefectClient, sweep: int) -> list[str]:
    """For another parent of a sweep that a night began."""
    run = last_parent(client, sweep)
    return [tag for tag in run.tags if tag == NIGHTLY or tag.startswith(_FROM)] if run else []


def last_night(client: SyncPrefectClient, tags: list[str]) -> str | None:
    """The name of a parent that still leads the sweep of an earlier night."""
    context = FlowRunContext.get()
    if not tags or context is None or context.flow_run is None:
        return None
    wanted = {
        "tags": {"all_": tags},
        "state": {"type": {"not_any_": _FINAL}},
        "id": {"not_any_": [str(context.flow_run.id)]},
    }
    found = client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": [PARENT_FLOW]}}),
        flow_run_filter=FlowRunFilter.model_validate(wanted),
        limit=1,
    )
    return found[0].name if found else None
