"""Prefect's side of the parent: which queues are served, and the slot runs that wait in them.

Every queue that a worker polls gets slot runs while there is work that its workers may do; a few
always wait there, so that a slot that becomes free, or a machine that joins, finds one. They are
known by the tag of their sweep: a parent that takes over finds those of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.states import Cancelled, Crashed

from flows.fleet.limbo import Limbo
from flows.fleet.needs import Words, from_text
from flows.fleet.stumbles import AT_ONCE, Stumble, stumbles
from flows.prefect.names import PARENT_FLOW

SLOT_FLOW = "modelmill-slot"
SILENT = 60.0
"""Seconds without a poll after which nobody serves a queue."""

_FEWEST = 2
_PAGE = 200
_LAST = 50
_UNENDED = [
    kind.value
    for kind in (StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
]
_ENDED = ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]


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
    _running: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, int] = field(default_factory=dict)
    _steady: set[str] = field(default_factory=set)
    """Queues with a slot that has been at work for a while."""
    _polls: dict[str, _Seen] = field(default_factory=dict)
    _stumbles: dict[str, Stumble] = field(default_factory=dict)
    _limbo: Limbo = field(default_factory=Limbo)

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
        """Count what waits and what runs; slot runs of an older run see that it is over."""
        self._running, self._waiting, self._steady = {}, {}, set()
        self._stumbles = stumbles(filter(self._of_this_run, self._ended()))
        for run in filter(self._of_this_run, list(self._read())):
            if self._limbo.holds(run):
                lost: State[Any] = Crashed(message="its worker died before it began")
                self.client.set_flow_run_state(run.id, lost, force=True)
                continue
            queue = str(run.work_queue_name)
            counts = self._waiting if _waits(run) else self._running
            if run.estimated_run_time > AT_ONCE:
                self._steady.add(queue)
            counts[queue] = counts.get(queue, 0) + 1

    def fill(self, queue: str, demand: int, *, busy: bool = False) -> None:
        """Let as many wait as run, a few at least, but no more than there is work for.

        Where slots fail at once one waits, after a pause; a short one if the sweep is `busy`.
        """
        stumble = self._stumbles.get(queue)
        few = _FEWEST if stumble is None else 1
        wanted = min(demand, max(few, self._running.get(queue, 0)))
        missing = wanted - self._waiting.get(queue, 0)
        if missing <= 0:
            return
        now = self._now()
        if stumble is not None and stumble.pauses(now, others_work=busy or queue in self._steady):
            return
        for _more in range(missing):
            self._submit(f"{SLOT_FLOW}/{self.pool}", self.parameters, now, queue)

    def stumbling(self) -> dict[str, str]:
        """Queues whose slots fail as soon as they begin, with what the last one said."""
        return {queue: one.message for queue, one in self._stumbles.items() if one.lasting}

    def dismiss(self) -> None:
        """Cancel what waits; what runs sees by itself that nothing is left."""
        for run in list(self._read()):
            if _waits(run):
                gone: State[Any] = Cancelled(message="nothing is left to do")
                self.client.set_flow_run_state(run.id, gone, force=True)

    def hand_over(self) -> None:
        """Start another parent; not as a child of ours, whose end would be its own."""
        parameters = {**self.parameters, "pool": self.pool}
        self._submit(f"{PARENT_FLOW}/{self.pool}", parameters, self._now(), child=False)

    def _submit(
        self,
        deployment: str,
        parameters: Mapping[str, Any],
        now: datetime,
        queue: str | None = None,
        *,
        child: bool = True,
    ) -> None:
        run_deployment(
            deployment,
            parameters=dict(parameters),
            scheduled_time=now,
            timeout=0,
            tags=self.tags,
            work_queue_name=queue,
            as_subflow=child,
        )

    def _now(self) -> datetime:
        """The server's clock: were ours ahead, what we submit would wait until it is as late."""
        told = self.client.hello().headers.get("Date")
        return parsedate_to_datetime(told) if told else datetime.now(UTC)

    def _of_this_run(self, run: FlowRun) -> bool:
        return run.parameters == dict(self.parameters)

    def _read(self) -> Iterator[FlowRun]:
        """The slot runs of this sweep that have not ended."""
        start = 0
        while True:
            page = self._slots(_UNENDED, limit=_PAGE, offset=start)
            yield from page
            start += len(page)
            if len(page) < _PAGE:
                return

    def _ended(self) -> list[FlowRun]:
        """The last ones that have, the last one first."""
        return self._slots(_ENDED, limit=_LAST, sort=FlowRunSort.END_TIME_DESC)

    def _slots(self, states: list[str], **page: Any) -> list[FlowRun]:
        wanted = {
            "tags": {"all_": [f"sweep:{self.parameters['sweep']}"]},
            "state": {"type": {"any_": states}},
        }
        return self.client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": [SLOT_FLOW]}}),
            flow_run_filter=FlowRunFilter.model_validate(wanted),
            **page,
        )


def _waits(run: FlowRun) -> bool:
    return run.state is not None and (run.state.is_scheduled() or run.state.is_pending())
