"""`sweep --fleet`: record a run, start its parent and follow it through the state.

`resume --fleet` and `retry --fleet` continue a sweep whose plan is in the state. A sweep that never
ran on a fleet has no plan there; it is planned again from its catalog. The results of tunings are
saved in the files of the machine that follows them: champions and new evidence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any

from flows.fleet.lead import (
    AWAY,
    CANCELLED,
    ParentWatch,
    another_parent,
    check_deployed,
    reached,
    refused,
    submit,
)
from flows.fleet.run import FLAGS, FleetRun, NoFleetRun, last_run, record_run, state_url, values_of
from flows.observe.following import Follower
from flows.observe.progress import SweepProgress
from flows.observe.summaries import clear_summaries
from flows.observe.summary import summary_of
from flows.observe.views import choose_view
from flows.output.activity import waiting_for
from flows.plan.estimates import estimate
from flows.plan.planning import catalog_reference, plan_of, size_of
from flows.plan.recorded import TUNING, recall, with_other_catalogs
from flows.run.resume import failed_cells
from flows.run.run import Run, tell_ended
from flows.settings.settings import CHANGEABLE, OPTIONS, Settings
from flows.settings.workspace import Workspace, find_sweep
from flows.stop import Stop, stopped_by_signals
from flows.sweep.cancellation import RELEASED, cancel_sweep
from flows.sweep.lifecycle import Sweep
from flows.tune.batch import Order, begin_shared, is_catalog, of_fleet, read_tuning, rows_of
from flows.tune.conclusion import champions_file, conclude
from flows.tune.document import report_lines
from flows.tune.record import cell_of, recorded
from machine.waits import untold
from matrix.codec import to_json
from matrix.errors import Exit, MillError, NothingSelected, UsageError
from matrix.model import Plan
from matrix.status import FailureClass
from matrix.trials import OVER, TuningStatus
from state.database import Patience
from state.errors import StateUnavailable
from state.records import Kind, SweepInfo
from state.state import State, open_state

_LOOK = 0.5
_LOOKS = 10
"""After so many looks, one whether there is a parent."""
CHAMPIONS, BUDGET = "champions", "budget"
"""Keys of what was asked for: the file that gets the champions, and the seconds for each model."""


class ParentLost(MillError):
    """The parent flow run ended without ending the sweep."""

    exit_code = Exit.INTERRUPTED


@dataclass(slots=True)
class Launch(Run):
    """One run of `sweep`, `resume` or `retry` with `--fleet`."""

    pool: str = field(kw_only=True)

    def go(self) -> Exit:
        """Record and start it, follow it, say how it ended."""
        check_server(self.pool)
        if self.settings.summary:
            clear_summaries(self.settings.path(self.settings.summary))
        stop = self._stop
        with open_state(state_url(self.settings)) as opened, stopped_by_signals(stop, RELEASED + 5):
            state = opened.patient(Patience(stop.wait))
            feed = Workspace(self.settings).open_feed()
            sweep = Sweep(self.plan, self.settings, state, feed, stop, self.recorded, self.again)
            sweep.by_memory, sweep.flags = True, FLAGS
            run = self._record(sweep)
            with reached():
                submit(self.pool, run)
            self._follow(state, run, stop)
            if stop:
                cancel_sweep(opened, run.sweep)
            sweep.info = info = opened.sweep(run.sweep)
            code = Exit.INTERRUPTED if stop else Exit(info.exit_code or 0)
            index = [one.data for one in opened.events(info.id, run.id, kind=Kind.INDEX)]
            version = (index[-1] or {}).get("version") if index else None
            tell_ended(opened, sweep, summary_of(opened, info), version, code, self.as_json)
            if asked := self.recorded.get(TUNING):
                name, as_json = self.plan.stamp, self.as_json
                held = conclude_tunings(opened, self.settings, name, asked, as_json=as_json)
                code = Exit.CELLS_FAILED if code is Exit.OK and not held else code
        return code

    def _record(self, sweep: Sweep) -> FleetRun:
        sweep.record(estimate(self.plan, sweep.state))
        sweep.look_back()  # the parent takes the failed cells up, once nothing else can stop it
        run = FleetRun(sweep.info.id, self.plan, self.recorded, sweep.feed.name, again=self.again)
        run = replace(run, id=record_run(sweep.state, run))
        if not self.as_json:
            print(f"sweep {self.plan.stamp}: {size_of(self.plan)}")
            print(f"on the fleet {self.pool} -> {sweep.feed.name}", flush=True)
            for line in sweep.earlier:
                print(line, flush=True)
        return run

    def _follow(self, state: State, run: FleetRun, stop: Stop) -> None:
        publish = not self.settings.no_publish
        known = estimate(run.plan, state)
        progress = SweepProgress(state.statuses(run.sweep), publish=publish, known=known)
        looks, limit = 0, self.settings.start_limit
        ask = partial(another_parent, self.pool, run)
        parents = ParentWatch(state, run.sweep, run.id, limit, ask)
        with Follower(state, run.sweep, choose_view(as_json=self.as_json), progress, run.id):
            while not stop.wait(_LOOK):
                if state.sweep(run.sweep).ended_at is not None:
                    return
                looks += 1
                count_slots(state, run.sweep, progress)
                if looks % _LOOKS:
                    continue
                parents.look()
                why = ""
                with suppress(*AWAY):
                    why = refused(run.sweep)
                if why == CANCELLED:  # its process may have been killed before it said so
                    stop.ask()
                elif why and state.sweep(run.sweep).ended_at is None:
                    raise ParentLost(
                        f"the parent of sweep {self.plan.stamp} ended: {why}; its slots continue",
                        hint=f"modelmill resume {self.plan.stamp} --fleet",
                    )


def check_server(pool: str) -> None:
    """Raise unless the Prefect server answers and knows the fleet."""
    waiting_for("asking the Prefect server")
    if not os.environ.get("PREFECT_API_URL"):
        raise UsageError("--fleet needs a Prefect server", hint="set PREFECT_API_URL")
    with reached():
        check_deployed(pool)


def count_slots(state: State, sweep: int, progress: SweepProgress) -> None:
    """Count the slots that hold a lease; the estimate of the time left depends on it."""
    with suppress(StateUnavailable):  # the database restarts; the number stays for now
        working = {one.owner for one in state.leases(sweep) if not one.expired}
        progress.slots = max(1, len(working))


_OF_COMMAND = ("state", "summary")
"""Settings of this command; all others belong to the sweep or to its workers."""


def sweep_on_fleet(
    settings: Settings, plan: Plan, catalog: str, pool: str, *, as_json: bool
) -> Exit:
    """Run a new sweep, or a planned one again."""
    return Launch(plan, settings, values_of(settings, catalog), as_json, pool=pool).go()


def resume_on_fleet(
    settings: Settings,
    stamp: str | None,
    pool: str,
    *,
    retry: tuple[FailureClass, ...] | None = None,
    as_json: bool,
) -> Exit:
    """Run a sweep again as it ran last; with `retry`, its failed cells of these classes too (no
    classes: all of them; `--only` narrows it)."""
    with open_state(state_url(settings)) as state:
        info = find_sweep(state, stamp)
        narrowing = () if retry is None else ("only",)
        launch = launch_of(state, info, settings, pool, narrowing, as_json=as_json)
        if retry is not None:
            launch.again = failed_cells(state, info, retry, settings.only)
    return launch.go()


def launch_of(
    state: State,
    info: SweepInfo,
    settings: Settings,
    pool: str,
    narrowing: Sequence[str],
    *,
    as_json: bool,
) -> Launch:
    try:
        run = last_run(state, info.id, info.stamp)
    except NoFleetRun:
        recalled, catalog = recall(settings, info.stamp, info.settings)
        plan = plan_of(recalled, catalog, date.today())  # noqa: DTZ011 - the user's date
        return Launch(plan, recalled, values_of(recalled, catalog), as_json, pool=pool)
    run = replace(run, values={**run.values, **_changes(settings, info, narrowing)})
    known = run.settings({**os.environ, **settings.variables(_OF_COMMAND)}, settings.cwd)
    plan = with_other_catalogs(
        state, info.id, run.plan, str(run.values.get("catalog", "")), settings.only
    )
    return Launch(plan, known, run.values, as_json, pool=pool)


def _changes(settings: Settings, info: SweepInfo, narrowing: Sequence[str]) -> dict[str, Any]:
    """What flags change; one that would change nothing is refused."""
    given = [name for name, origin in settings.origins.items() if origin.startswith("flag")]
    taken = {*CHANGEABLE, *narrowing, *_OF_COMMAND}
    lost = [OPTIONS[name].flag for name in given if name not in taken]
    if lost:
        flags = ", ".join(OPTIONS[name].flag for name in CHANGEABLE)
        raise UsageError(
            f"sweep {info.stamp} of a fleet keeps its plan: {', '.join(lost)} changes nothing",
            hint=f"what can change: {flags}; give others to the workers or begin a new sweep",
        )
    return settings.chosen(name for name in given if name in CHANGEABLE)


def order_tunings(
    settings: Settings, order: Order, budget: float | None, pool: str, *, as_json: bool
) -> tuple[str, Exit]:
    """Plan and record tunings, have a fleet make them, follow them to the end; with their name."""
    check_server(pool)
    with open_state(state_url(settings)) as state:
        plan, ours = begin_shared(settings, state, order)
        if not state.tunings(plan.stamp):
            raise NothingSelected("the selection matches no cell to tune")
    catalog = catalog_reference(settings, order.what) if is_catalog(order.what) else order.what
    asked = {BUDGET: budget, CHAMPIONS: str(champions_file(settings).absolute())}
    values = {**values_of(ours, catalog), TUNING: asked}
    code = Launch(plan, ours, values, as_json, pool=pool).go()
    return plan.stamp, code


def resume_tunings(
    settings: Settings, name: str, budget: float | None, pool: str, *, as_json: bool
) -> Exit:
    """Go on with the tunings of a name; those whose budget was used up have a new one."""
    check_server(pool)
    with open_state(state_url(settings)) as state:
        rows = rows_of(state, name)
        info = of_fleet(state, name)
        if info is None:
            raise UsageError(
                f"the tuning {name} was not begun on a fleet",
                hint=f"modelmill tune --resume {name}",
            )
        launch = launch_of(state, info, settings, pool, (), as_json=as_json)
        left = [cell_of(row) for row in rows if row.status is not TuningStatus.DONE]
        state.measure_again(info.id, left)
    launch.recorded = {**launch.recorded, TUNING: {**launch.recorded[TUNING], BUDGET: budget}}
    return launch.go()


def conclude_tunings(
    state: State, settings: Settings, name: str, asked: Mapping[str, Any], *, as_json: bool
) -> bool:
    """Save the results of finished tunings and report all; returns whether none failed."""
    if file := asked.get(CHAMPIONS):
        settings = replace(settings, champions=str(file))
    told = untold if as_json else partial(print, flush=True)
    for row in rows_of(state, name):
        if row.status in OVER and not row.detail.get("concluded"):
            kept = read_tuning(state, row)
            conclude(settings, kept, told)
            kept.change(concluded=True)
    found = recorded(state, name)
    if as_json:
        print(json.dumps({"type": "tunings", "tunings": to_json(found)}), flush=True)
    else:
        print("\n".join(report_lines(found, champions_file(settings), f"{name} --fleet")))
    return not any(one.tuning.status is TuningStatus.FAILED for one in found)
