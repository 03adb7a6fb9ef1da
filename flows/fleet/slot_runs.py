"""The slot flow runs of a sweep, as its parent submits and counts them on the Prefect server.

Every queue that a worker polls gets slot runs while there is work that its workers can do. A few
always wait there, so that a slot that becomes free, or a machine that joins, finds one. They carry
the tag of their sweep: a parent that takes over finds those of the parent before it.

A run stays pending while its machine is too busy to start a process, and for ever when its worker
dies before it does so: Prefect never gives it to another worker. The two cannot be told apart from
here, so nothing is done to the run, and another one is asked for in its place.

A slot fails on a machine that cannot reach the feed or lacks a library; it is tried again with
growing pauses, because otherwise the machine would get one run after another for as long as the
sweep lasts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.states import Cancelled

from flows.fleet.lead import FINAL, PARENT_FLOW, UNFINISHED, runs_of
from matrix.needs import Words, from_text

SLOT_FLOW = "modelmill-slot"
SILENT = 60.0
"""Seconds without a poll after which a queue counts as unserved."""
_FEWEST = 2
_PAGE = 200
_LAST = 50
AT_ONCE = timedelta(seconds=30)
"""A slot that leased a model would hardly have crashed by then."""
ACCIDENTS = 2
"""Failures in a row that are tried again without a pause."""
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 30.0
"""Short, because a queue has healthy machines too, and repaired ones."""


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """The slot runs of a queue that failed since the last one that did not."""

    count: int
    ended: datetime
    """When the last one ended."""
    message: str

    @property
    def lasting(self) -> bool:
        """Whether it looks like more than an accident."""
        return self.count > ACCIDENTS

    def pausing(self, now: datetime) -> bool:
        """Whether it is too early for another try."""
        pause = min(FIRST_PAUSE * 2 ** (self.count - ACCIDENTS - 1), LONGEST_PAUSE)
        return self.lasting and now < self.ended + timedelta(seconds=pause)


def failed_starts(ended: Iterable[FlowRun]) -> dict[str, FailedStarts]:
    """By queue; `ended`: slot runs that ended, the last one first."""
    found: dict[str, FailedStarts] = {}
    settled: set[str] = set()
    for run in ended:
        queue = str(run.work_queue_name)
        if run.state is None or run.end_time is None or queue in settled:
            continue
        if run.state.is_cancelled() and run.start_time is None:
            continue  # never began
        if not _did_not_work(run):
            settled.add(queue)
            continue
        if queue in found:
            found[queue] = replace(found[queue], count=found[queue].count + 1)
        else:
            message = str(run.state.message or run.state.name)
            found[queue] = FailedStarts(1, run.end_time, message)
    return found


def _did_not_work(run: FlowRun) -> bool:
    """Whether the slot said that its machine cannot work, or crashed as soon as it began."""
    if run.state is None or run.state.is_failed():
        return run.state is not None
    return run.state.is_crashed() and (run.total_run_time or timedelta()) < AT_ONCE


@dataclass(slots=True)
class SlotRuns:
    """The slot runs of one sweep in one pool."""

    client: SyncPrefectClient
    pool: str
    parameters: Mapping[str, Any]
    tags: list[str]
    start_limit: float
    """Seconds after which a run that has not begun no longer counts as one that waits."""
    _waiting: Counter[str] = field(default_factory=Counter)
    """By queue."""
    _polls: dict[str, tuple[object, float]] = field(default_factory=dict)
    """The time of the last poll by the server's clock, and when we first saw it by ours."""
    _asked: float = 0.0
    """When the server last told of the queues, by our clock."""
    _failed: dict[str, FailedStarts] = field(default_factory=dict)
    _pending: dict[UUID, float] = field(default_factory=dict)
    """Since when runs are pending, by our own clock: the server's may differ. Keyed by the state: a
    run that is pending for the second time gets the full limit again."""

    def served_queues(self) -> dict[str, Words]:
        """The queues that are polled, with what their workers announce.

        A queue is served while the time of its last poll changes; the time itself says nothing,
        because the server's clock may differ from ours. Nobody could poll while the server was
        away.
        """
        found = {}
        queues, now = self.client.read_work_queues(work_pool_name=self.pool), time.monotonic()
        if now - self._asked >= SILENT:
            self._polls.clear()
        self._asked = now
        for queue in queues:
            if queue.last_polled is None or not (words := from_text(queue.description)):
                continue
            polled, since = self._polls.get(queue.name, (None, now))
            if polled != queue.last_polled:
                since = now
                self._polls[queue.name] = (queue.last_polled, now)
            if now - since < SILENT:
                found[queue.name] = words
        return found

    def refresh(self) -> None:
        """Count waiting slot runs. Slot runs of an older run notice that it is over."""
        self._waiting = Counter()
        self._failed = failed_starts(filter(self._of_this_run, self._ended()))
        for run in filter(self._of_this_run, list(self._unfinished())):
            # If one that is overdue begins after all, there is one slot more.
            if not self._overdue(run) and _waits(run):
                self._waiting[str(run.work_queue_name)] += 1

    def _overdue(self, run: FlowRun) -> bool:
        """Whether a run has been pending for too long; asked at every poll.

        Works around Prefect (test_a_pending_run_is_never_given_to_another_worker): a run whose
        worker died before it started the process stays pending for ever.
        """
        if run.state is None or not run.state.is_pending():
            return False
        now = time.monotonic()
        return now - self._pending.setdefault(run.state.id, now) > self.start_limit

    def fill(self, queue: str, demand: int, working: int) -> None:
        """Let as many wait as slots work, a few at least, but no more than there is work for.

        Where slots fail, one waits, after a pause.
        """
        failed = self._failed.get(queue)
        fewest = _FEWEST if failed is None else 1
        wanted = min(demand, max(fewest, working))
        missing = wanted - self._waiting[queue]
        if missing <= 0:
            return
        now = self._now()
        if failed is not None and failed.pausing(now):
            return
        for _slot in range(missing):
            self._submit(f"{SLOT_FLOW}/{self.pool}", self.parameters, now, queue)

    def failing(self) -> dict[str, str]:
        """Queues whose slots fail, with the message of the last one."""
        return {queue: one.message for queue, one in self._failed.items() if one.lasting}

    def cancel_waiting(self) -> None:
        """Cancel waiting slot runs; running ones notice by themselves that nothing is left."""
        for run in list(self._unfinished()):
            if _waits(run):
                gone: State[Any] = Cancelled(message="nothing is left to do")
                self.client.set_flow_run_state(run.id, gone)

    def start_another_parent(self) -> None:
        """Not as a child of this one, with which it would end."""
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
        """The server's time.

        Works around Prefect (test_a_run_is_due_by_the_clock_of_whoever_submits_it): by default a
        run is due by our clock, and where that is ahead the run waits for the server's.
        """
        told = self.client.hello().headers.get("Date")
        return parsedate_to_datetime(told) if told else datetime.now(UTC)

    def _of_this_run(self, run: FlowRun) -> bool:
        return run.parameters == dict(self.parameters)

    def _unfinished(self) -> Iterator[FlowRun]:
        start = 0
        while True:
            page = self._read(UNFINISHED, limit=_PAGE, offset=start)
            yield from page
            start += len(page)
            if len(page) < _PAGE:
                return

    def _ended(self) -> list[FlowRun]:
        """The last ones, newest first."""
        ended = {"state": {"type": {"any_": FINAL}}}
        return self._read(ended, limit=_LAST, sort=FlowRunSort.END_TIME_DESC)

    def _read(self, wanted: Mapping[str, Any], **page: Any) -> list[FlowRun]:
        tags = [f"sweep:{self.parameters['sweep']}"]
        return runs_of(self.client, SLOT_FLOW, tags, wanted, **page)


def _waits(run: FlowRun) -> bool:
    return run.state is not None and (run.state.is_scheduled() or run.state.is_pending())
