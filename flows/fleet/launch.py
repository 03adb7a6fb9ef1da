"""`sweep --fleet`: record a run, start its parent and follow it through the state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from flows.cli.activity import waiting_for
from flows.cli.settings import Settings
from flows.fleet.connection import reached
from flows.fleet.run import FleetRun, record_run, state_url
from flows.observe.estimates import estimate
from flows.observe.following import Follower
from flows.observe.progress import SweepProgress
from flows.observe.summaries import clear_summaries, write_summaries
from flows.observe.summaries.document import LastRun
from flows.observe.summary import summary_of
from flows.observe.views import choose_view
from flows.sweep.cancellation import RELEASED, cancel_sweep
from flows.sweep.lifecycle import Sweep
from flows.sweep.planning import size_of
from flows.sweep.run import print_ended
from flows.sweep.stop import Stop, stopped_by_signals
from flows.sweep.workspace import Workspace
from matrix.errors import Exit, MillError, UsageError
from matrix.model import Plan
from state.database import Patience
from state.errors import StateUnavailable
from state.records import Kind
from state.state import State, open_state

_LOOK = 0.5
_ASK_PREFECT = 10
"""Every so many looks, whether the parent died."""


class ParentLost(MillError):
    """The parent flow run ended without ending the sweep."""

    exit_code = Exit.INTERRUPTED


@dataclass(slots=True)
class Launch:
    """One call of sweep, resume or retry with `--fleet`."""

    plan: Plan
    settings: Settings
    values: Mapping[str, Any]
    pool: str
    as_json: bool = False
    again: bool = True
    """As in `flows.sweep.run.Run`."""

    def go(self) -> Exit:
        """Record and start the run, follow it, say how it ended."""
        self.check()
        if self.settings.summary:
            clear_summaries(self.settings.path(self.settings.summary))
        stop = Stop()
        with open_state(state_url(self.settings)) as opened, stopped_by_signals(stop, RELEASED + 5):
            state = opened.patient(Patience(stop.wait))
            run = self._record(state)
            self._follow(state, run, self._submit(run), stop)
            if stop:
                cancel_sweep(opened, run.sweep)
            if self.settings.summary:
                info = opened.sweep(run.sweep)
                write_summaries(self.settings.path(self.settings.summary), opened, info)
            return self._say_ended(opened, run, stop)

    def check(self) -> None:
        """Refuse, before anything is recorded, a server that is away or does not know the fleet."""
        waiting_for("asking the Prefect server")
        if not os.environ.get("PREFECT_API_URL"):
            raise UsageError("--fleet needs a Prefect server", hint="set PREFECT_API_URL")
        from flows.fleet.parent_runs import check_deployed

        with reached():
            check_deployed(self.pool)

    def _submit(self, run: FleetRun) -> UUID:
        from flows.fleet.parent_runs import submit

        with reached():
            return submit(self.pool, run)

    def _record(self, state: State) -> FleetRun:
        feed = Workspace(self.settings).open_feed()
        sweep = Sweep(self.plan, self.settings, state, feed, Stop(), self.values, self.again, True)
        sweep.record(estimate(self.plan, state))
        run = FleetRun(sweep.info.id, self.plan, self.values, feed.name)
        run = replace(run, id=record_run(state, run))
        if not self.as_json:
            print(f"sweep {self.plan.stamp}: {size_of(self.plan)}")
            print(f"on the fleet {self.pool} -> {feed.name}", flush=True)
            for line in sweep.earlier.lines(self.plan.stamp, " --fleet"):
                print(line, flush=True)
        return run

    def _follow(self, state: State, run: FleetRun, parent: UUID, stop: Stop) -> None:
        from flows.fleet.parent_runs import ParentRuns

        publish = not self.settings.no_publish
        known = estimate(run.plan, state)
        progress = SweepProgress(state.statuses(run.sweep), publish=publish, known=known)
        looks, parents = 0, ParentRuns(parent, run.sweep)
        with Follower(state, run.sweep, choose_view(as_json=self.as_json), progress, run.id):
            while not stop.wait(_LOOK):
                if state.sweep(run.sweep).ended_at is not None:
                    return
                looks += 1
                count_slots(state, run.sweep, progress)
                if looks % _ASK_PREFECT == 0 and parents.ended():
                    if state.sweep(run.sweep).ended_at is not None:
                        return
                    raise ParentLost(
                        f"the parent of sweep {self.plan.stamp} is gone; its slots go on",
                        hint=f"modelmill resume {self.plan.stamp} --fleet",
                    )

    def _say_ended(self, state: State, run: FleetRun, stop: Stop) -> Exit:
        info = state.sweep(run.sweep)
        code = Exit.INTERRUPTED if stop else Exit(info.exit_code or 0)
        index = [one.data for one in state.events(info.id, run.id, kind=Kind.INDEX) if one.data]
        print_ended(
            self.plan,
            self.settings.package,
            summary_of(state, info),
            LastRun.of(state, info),
            code,
            index[-1]["version"] if index else None,
            as_json=self.as_json,
            flags=" --fleet",
        )
        return code


def count_slots(state: State, sweep: int, progress: SweepProgress) -> None:
    """Count the slots that hold a lease; the estimate of the time left depends on it."""
    with suppress(StateUnavailable):  # the database restarts; the number stays for now
        working = {one.owner for one in state.leases(sweep) if not one.expired}
        progress.slots = max(1, len(working))
