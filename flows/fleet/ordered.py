"""The parent of a sweep as Prefect sees it, for those who follow the sweep through the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Scheduled

from flows.fleet.limbo import Limbo
from flows.prefect.names import PARENT_FLOW

_FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@dataclass(slots=True)
class Ordered:
    """A parent that was asked for, and whoever leads in its place."""

    flow_run: UUID
    sweep: int
    _limbo: Limbo = field(default_factory=Limbo)

    def gone(self) -> bool:
        """Whether it has ended and no other one leads, or is to lead, in its place.

        One whose worker died before it began is given to the next worker.
        """
        try:
            with get_client(sync_client=True) as client:
                leading = self._leading(client)
                for run in leading:
                    if self._limbo.holds(run):
                        again: State[Any] = Scheduled(scheduled_time=run.expected_start_time)
                        client.set_flow_run_state(run.id, again, force=True)
                state = client.read_flow_run(self.flow_run).state
                return not leading and state is not None and state.is_final()
        except httpx.HTTPError:
            return False  # the server is away; the sweep is not

    def _leading(self, client: SyncPrefectClient) -> list[FlowRun]:
        wanted = {
            "tags": {"all_": [f"sweep:{self.sweep}"]},
            "state": {"type": {"not_any_": _FINAL}},
        }
        return client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": [PARENT_FLOW]}}),
            flow_run_filter=FlowRunFilter.model_validate(wanted),
        )
