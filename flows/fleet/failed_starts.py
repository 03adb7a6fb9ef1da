"""Flow runs that do not work: those that stay pending, and slots that fail.

A run stays pending while its machine is too busy to start a process, and for ever when its worker
dies before it does so: Prefect never gives it to another worker. The two cannot be told apart from
here, so nothing is done to the run, and another one is asked for in its place.

A slot fails on a machine that cannot reach the feed or lacks a library; it is tried again with
growing pauses, because otherwise the machine would get one run after another for as long as the
sweep lasts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

AT_ONCE = timedelta(seconds=30)
"""A slot that leased a model would hardly have crashed by then."""
ACCIDENTS = 2
"""Failures in a row that are tried again without a pause."""
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 30.0
"""Short, because a queue has healthy machines too, and repaired ones."""


@dataclass(slots=True)
class PendingRuns:
    """How long runs have been pending, by our own clock: the server's may differ.

    Works around Prefect (test_a_pending_run_is_never_given_to_another_worker): a run whose worker
    died before it started the process stays pending for ever.
    """

    limit: float
    """Seconds after which another run is asked for."""
    _since: dict[UUID, float] = field(default_factory=dict)

    def overdue(self, run: FlowRun) -> bool:
        """Whether the run has been pending for too long; call it at every poll."""
        if run.state is None or not run.state.is_pending():
            return False
        now = time.monotonic()
        # Keyed by the state: a run that is pending for the second time gets the full limit again.
        return now - self._since.setdefault(run.state.id, now) > self.limit


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
