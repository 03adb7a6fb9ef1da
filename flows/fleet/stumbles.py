"""Slot runs that fail as soon as they begin: tried again with growing pauses, and told.

A machine that cannot reach the feed, or lacks a library, would otherwise be given one run after
the other for as long as the sweep lasts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from prefect.client.schemas.objects import FlowRun

AT_ONCE = timedelta(seconds=30)
"""A slot that leased a model would hardly have failed by then."""
FORGIVEN = 2
"""Failures in a row that are tried again at once."""
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0
SHORTER = 30.0
"""The longest while the sweep goes on elsewhere: slots may have been killed, or machines join."""


@dataclass(frozen=True, slots=True)
class Stumble:
    """What became of the last slot runs of a queue."""

    count: int
    """Failures at once since a run did better."""
    ended: datetime
    message: str

    @property
    def lasting(self) -> bool:
        """Whether it looks like more than an accident."""
        return self.count > FORGIVEN

    def pauses(self, now: datetime, *, others_work: bool = False) -> bool:
        """Whether it is too early for another try."""
        if not self.lasting:
            return False
        limit = SHORTER if others_work else LONGEST_PAUSE
        pause = min(FIRST_PAUSE * 2 ** (self.count - FORGIVEN - 1), limit)
        return now < self.ended + timedelta(seconds=pause)


def stumbles(ended: Iterable[FlowRun]) -> dict[str, Stumble]:
    """By queue, from runs that ended, the last one first."""
    found: dict[str, Stumble] = {}
    better: set[str] = set()
    for run in ended:
        queue = str(run.work_queue_name)
        if run.state is None or run.end_time is None or queue in better:
            continue
        if run.state.is_cancelled() and run.start_time is None:
            continue  # sent away before it began
        if not _failed_at_once(run):
            better.add(queue)
            continue
        last = found.get(queue)
        found[queue] = Stumble(
            count=last.count + 1 if last else 1,
            ended=last.ended if last else run.end_time,
            message=last.message if last else str(run.state.message or run.state.name),
        )
    return found


def _failed_at_once(run: FlowRun) -> bool:
    if run.state is None or not (run.state.is_failed() or run.state.is_crashed()):
        return False
    return (run.total_run_time or timedelta()) < AT_ONCE
