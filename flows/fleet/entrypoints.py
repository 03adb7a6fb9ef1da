"""The flows that are deployed. Prefect's worker imports them by name on any machine."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed
from pydantic import BaseModel, ConfigDict, Field, create_model

from flows.fleet.lead import (
    NIGHTLY,
    PARENT_FLOW,
    Heartbeat,
    earlier_night,
    nightly_of,
    this_run,
)
from flows.fleet.parent import Parent, ParentDisplay
from flows.fleet.run import FleetRun, read_run, state_url, values_of
from flows.fleet.slot import work_in_slot
from flows.fleet.slot_runs import SLOT_FLOW, SlotRuns
from flows.fleet.worker_folder import CWD, WorkerFolder
from flows.observe.following import Follower
from flows.observe.progress import SweepProgress
from flows.observe.summary import Summary
from flows.plan.planning import catalog_reference, plan_of
from flows.plan.recorded import recorded_estimates
from flows.prefect.shown_run import ShownRun, ended, tags_of
from flows.settings.resolution import resolve
from flows.settings.settings import FORM, OPTIONS
from flows.settings.workspace import Workspace
from flows.stop import Stop
from flows.sweep.cancellation import CancellationWatch, StoppedElsewhere
from matrix.errors import MillError
from state.database import Patience
from state.records import Kind
from state.state import State as MillState
from state.state import open_state

_STOP_LIMIT = 20.0


_FIELDS: Mapping[str, Any] = {
    one.name: (one.type, Field(default=one.default, description=one.help))
    for one in map(OPTIONS.__getitem__, FORM)
}
SweepSettings: type[BaseModel] = create_model(
    "SweepSettings", __config__=ConfigDict(extra="forbid"), **_FIELDS
)
"""The form of the parent flow in Prefect, made from the settings."""


@flow(name=SLOT_FLOW, flow_run_name="{stamp}-slot", persist_result=False)
def slot(stamp: str, sweep: int, run: int) -> State[Any]:  # noqa: ARG001 - names the run
    """Build models of a sweep in this worker slot until nothing is left."""
    stop, here = Stop(), this_run()
    error = _in_thread(partial(work_in_slot, sweep, run, os.environ, stop, here), stop)
    if error is not None:
        return _failed(error)
    if stop.error is not None and not isinstance(stop.error, StoppedElsewhere):
        return _failed(stop.error)  # this machine cannot work; others go on
    if stop:
        return Cancelled(message=str(stop.error or "stopped; its model was handed back"))
    return Completed()


@flow(name=PARENT_FLOW, flow_run_name="sweep-{stamp}", persist_result=False)
def parent(
    catalog: str = "demo",
    stamp: str = "today",
    settings: SweepSettings = SweepSettings(),  # type: ignore[valid-type]  # noqa: B008 - the form
    pool: str = "modelmill",
    sweep: int = 0,
    run: int = 0,
) -> State[Any]:
    """Build, verify and publish a catalog on the fleet.

    `sweep` and `run` name a run that is recorded in the state; all but `pool` is read from there.
    """
    stop = Stop()
    made: list[Summary] = []
    here = this_run()
    nightly, left_out = nightly_of(here), ""

    def work() -> None:
        nonlocal left_out
        cwd = Path(os.environ.get(CWD, ".")).absolute()
        where = state_url(resolve({}, os.environ, cwd))
        with open_state(where, patience=Patience(stop.wait)) as state:
            if run:
                recorded = read_run(state, sweep, run, stop)
                if any(state.events(sweep, run, kind=Kind.INTERRUPTED)):
                    stop.ask()  # cancelled before it began: to begin would plan it again
                    return
            else:
                due = here.expected_start_time if here and nightly else None
                if due and (still := earlier_night(state, nightly, due.timestamp())):
                    left_out = f"left out: sweep-{still.stamp} of an earlier night is not over"
                    return
                recorded = _planned(catalog, stamp, settings, cwd, nightly)
            made.extend(filter(None, [_sweep(state, recorded, cwd, pool, stop)]))

    error = _in_thread(work, stop)
    if error is not None:
        return _failed(error)
    if left_out:
        return Cancelled(message=left_out)
    if not made and stop:
        return Cancelled(message="cancelled before it began")
    if not made:
        return Completed(message="no longer leads: a newer parent does, or its worker ended")
    return ended(made[0], made[0].exit_code(stop), stop.error)


def _failed(error: MillError) -> State[Any]:
    return Failed(message=str(error)[:500])


def _planned(catalog: str, stamp: str, form: BaseModel, cwd: Path, nightly: str) -> FleetRun:
    flags = form.model_dump(exclude_unset=True)
    if stamp != "today":
        flags["stamp"] = stamp
    settings = resolve(flags, os.environ, cwd)
    plan = plan_of(settings, catalog, date.today())  # noqa: DTZ011 - the date of this place
    values = values_of(settings, catalog_reference(settings, catalog))
    if nightly:
        values[NIGHTLY] = nightly
    return FleetRun(0, plan, values, Workspace(settings).open_feed().name)


def _sweep(
    state: MillState, recorded: FleetRun, cwd: Path, pool: str, stop: Stop
) -> Summary | None:
    """None: another parent finishes the sweep."""
    here = this_run()
    worker = WorkerFolder.of(os.environ)
    with worker.busy() if worker else nullcontext(), ExitStack() as living:
        settings = recorded.settings(os.environ, cwd)
        lead = Parent(state, recorded, settings, stop, worker)
        if recorded.id:  # to begin may take long
            living.enter_context(Heartbeat(state, recorded.sweep, settings.heartbeat))
        led, run = lead.begin()
        if not recorded.id:
            living.enter_context(Heartbeat(state, run.sweep, settings.heartbeat))
        parameters = {"stamp": run.plan.stamp, "sweep": run.sweep, "run": run.id}
        tags = tags_of(run.plan, run.sweep)
        known = recorded_estimates(state, run.sweep)
        progress = SweepProgress(state.statuses(run.sweep), publish=led.info.publish, known=known)
        # What was cancelled between the order and now counts too.
        first = recorded.id or run.id
        with get_client(sync_client=True) as client:
            at = here.id if here else None
            shown = ShownRun(run.plan, run.sweep, led.info.settings, flow_run=at)
            display = ParentDisplay(client, led, shown, progress)
            with (
                CancellationWatch(state.at_once, run.sweep, first, stop),
                Follower(state, run.sweep, display, progress, run.id),
            ):
                if here:
                    display.name_and_tag(here.id, tags)
                slots = SlotRuns(client, pool, parameters, tags, settings.start_limit)
                if not lead.lead(run, slots):
                    return None
        summary, index = lead.finish(led)
        display.result(index)
        return summary


def _in_thread(work: Callable[[], None], stop: Stop) -> MillError | None:
    """Work in a thread, and ask it to stop when Prefect cancels the run.

    Works around Prefect (test_a_cancelled_run_is_interrupted_in_its_main_thread): it raises the
    cancellation in the main thread, in the middle of whatever that is at.
    """
    pool = ThreadPoolExecutor(1, "work")
    working = pool.submit(contextvars.copy_context().run, work)
    try:
        while not wait([working], 0.2).done:
            pass
    except BaseException:
        stop.ask()
        wait([working], _STOP_LIMIT)
        raise
    finally:
        pool.shutdown(wait=False)
    try:
        working.result()
    except MillError as error:
        return error
    return None
