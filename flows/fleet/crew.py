"""Prefect's side of the parent: which queues are served, and the slot runs that wait in them.

Every queue that a worker polls gets slot runs while there is work that its workers may do; a few
always wait there, so that a slot that becomes free, or a machine that joins, finds one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.deployments import run_deployment
from prefect.states import Cancelled

from flows.fleet.needs import Words, from_text

SLOT_FLOW = "modelmill-slot"
SILENT = 60.0
"""Seconds without a poll after which nobody serves a queue."""

_FEWEST = 2
_PAGE = 200


@dataclass(slots=True)
class _Seen:
    polled: object
    at: float


@dataclass(slots=True)
class Crew:
    """The slot runs of one sweep in one pool."""

    client: SyncPrefectClient
    pool: str
    parameters: Mapping[str, Any]
    tags: list[str]
    _live: dict[UUID, str] = field(default_factory=dict)
    """Submitted and not ended, by queue."""
    _running: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, int] = field(default_factory=dict)
    _polls: dict[str, _Seen] = field(default_factory=dict)

    def queues(self) -> dict[str, Words]:
        """The queues that are polled, with what their workers announce.

        Told by the change of the time of the last poll: the server's clock may not be ours.
        """
        found = {}
        now = time.monotonic()
        for queue in self.client.read_work_queues(work_pool_name=self.pool):
            if queue.last_polled is None or not (words := from_text(queue.description)):
                continue
            seen = self._polls.get(queue.name)
            if seen is None or seen.polled != queue.last_polled:
                seen = self._polls[queue.name] = _Seen(queue.last_polled, now)
            if now - seen.at < SILENT:
                found[queue.name] = words
        return found

    def look(self) -> None:
        """Count what waits and what runs."""
        self._running, self._waiting = {}, {}
        for run in self._read():
            queue = self._live[run.id]
            if run.state is None or run.state.is_final():
                del self._live[run.id]
            elif run.state.is_scheduled() or run.state.is_pending():
                self._waiting[queue] = self._waiting.get(queue, 0) + 1
            else:
                self._running[queue] = self._running.get(queue, 0) + 1

    def fill(self, queue: str, demand: int) -> None:
        """Let as many wait as run, a few at least, but no more than there is work for."""
        wanted = min(demand, max(_FEWEST, self._running.get(queue, 0)))
        for _more in range(wanted - self._waiting.get(queue, 0)):
            run: Any = run_deployment(  # a coroutine only in async code
                f"{SLOT_FLOW}/{self.pool}",
                parameters=dict(self.parameters),
                timeout=0,
                tags=self.tags,
                work_queue_name=queue,
            )
            self._live[run.id] = queue

    def dismiss(self) -> None:
        """Cancel what waits; what runs sees by itself that nothing is left."""
        for run in self._read():
            if run.state and (run.state.is_scheduled() or run.state.is_pending()):
                gone: State[Any] = Cancelled(message="nothing is left to do")
                self.client.set_flow_run_state(run.id, gone, force=True)

    def _read(self) -> list[FlowRun]:
        ids = [str(one) for one in self._live]
        found: list[FlowRun] = []
        for start in range(0, len(ids), _PAGE):
            page = {"id": {"any_": ids[start : start + _PAGE]}}
            chosen = FlowRunFilter.model_validate(page)
            found += self.client.read_flow_runs(flow_run_filter=chosen, limit=_PAGE)
        return found
