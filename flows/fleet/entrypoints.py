"""The flows that are deployed. Prefect's worker imports this module by name on any machine."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import date
from pathlib import Path
from typing import Any

import httpx
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException
from prefect.states import Cancelled, Completed, Failed
from pydantic import BaseModel

from flows.cli.resolution import resolve
from flows.fleet.board import Counting, entitle, show_report, tags_of
from flows.fleet.crew import SLOT_FLOW, Crew
from flows.fleet.night import last_night, night_tags
from flows.fleet.orders import VARIABLE as ORDERS
from flows.fleet.orders import Orders
from flows.fleet.parameters import SweepSettings, flags_of
from flows.fleet.parent import Ended, Parent
from flows.fleet.patience import PatientState, open_patiently
from flows.fleet.shown import Board, quiet, shown_as_tasks
from flows.fleet.slot import FOLDER, Slot, state_url
from flows.fleet.ticket import Ticket, read_ticket, values_of
from flows.fleet.watch import Watch
from flows.observe.follower import Follower
from flows.observe.summary import Summary
from flows.observe.tally import Tally
from flows.prefect.names import PARENT_FLOW
from flows.sweep.planning import catalog_reference, plan_of
from flows.sweep.recorded_plan import foretold
from flows.sweep.stop import Stop
from flows.sweep.workspace import Workspace
from matrix.errors import Exit, MillError
from state.records import Kind

_FAREWELL = 20.0
_OVERALL = (httpx.HTTPError, PrefectException)


@flow(name=SLOT_FLOW, flow_run_name="{stamp}-slot", persist_result=False)
def slot(stamp: str, sweep: int, run: int) -> State[Any]:
    """Build models of a sweep in this worker slot until nothing is left."""
    quiet()
    stop = Stop()
    worker = Slot(sweep, run, os.environ, stop)
    error = _beside(lambda: worker.work(shown_as_tasks(stop, stamp)), stop)
    if error is not None:
        return Failed(message=f"{type(error).__name__}: {error}"[:500])
    if stop:
        return Cancelled(message=str(stop.error or "handed back"))
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

    `sweep` and `run` name a plan that is recorded in the state already and then count alone.
    """
    quiet()
    stop = Stop()
    made: list[Summary] = []
    night = night_tags()
    if night and not run:
        with get_client(sync_client=True) as client:
            still = last_night(client, night)
        if still:
            return Cancelled(message=f"left out: {still} of an earlier night is not over")

    def work() -> None:
        cwd = Path(os.environ.get(FOLDER, ".")).absolute()
        with open_patiently(state_url(resolve({}, os.environ, cwd)), stop) as state:
            if run:
                ticket = read_ticket(state, sweep, run, stop)
                if state.events(sweep, run, 1, kind=Kind.INTERRUPTED):
                    stop.ask()  # cancelled before it began: to begin would plan it again
                    return
            else:
                ticket = _planned(catalog, stamp, settings, cwd)
            made.extend(filter(None, [_sweep(state, ticket, cwd, pool, stop, night)]))

    error = _beside(work, stop)
    if error is not None:
        return Failed(message=f"{type(error).__name__}: {error}"[:500])
    if not made and stop:
        return Cancelled(message="cancelled before it began")
    if not made:
        return Completed(message="led no longer: a newer parent does, or its worker ended")
    code = made[0].exit_code(stop)
    text = "; ".join(made[0].lines())[:500]
    if code is Exit.OK:
        return Completed(message=text)
    return Cancelled(message=text) if code is Exit.INTERRUPTED else Failed(message=text)


def _planned(catalog: str, stamp: str, form: BaseModel, cwd: Path) -> Ticket:
    flags = flags_of(form)
    if stamp != "today":
        flags["stamp"] = stamp
    settings = resolve(flags, os.environ, cwd)
    plan = plan_of(settings, catalog, date.today())  # noqa: DTZ011 - the date of this place
    values = values_of(settings, catalog_reference(settings, catalog))
    return Ticket(0, plan, values, Workspace(settings).open_feed().name)


def _sweep(
    state: PatientState, ticket: Ticket, cwd: Path, pool: str, stop: Stop, night: list[str]
) -> Summary | None:
    """None: somebody else leads the sweep to its end."""
    folder = os.environ.get(ORDERS)
    orders = Orders(Path(folder)) if folder else None
    with orders.busy() if orders else nullcontext():
        settings = ticket.settings(os.environ, cwd)
        lead = Parent(state, ticket, settings, stop, _OVERALL, orders)
        begun, ticket = lead.begin()
        stamp = ticket.plan.stamp
        parameters = {"stamp": stamp, "sweep": ticket.sweep, "run": ticket.run}
        tags = tags_of(ticket.plan, ticket.sweep) + night
        known = foretold(state, ticket.sweep)
        tally = Tally(state.statuses(ticket.sweep), publish=begun.info.publish, known=known)
        board = Board(stamp, tally)
        # Cancelled between the order and now counts too, so it looks from the first ticket on.
        first = lead.ticket.run or ticket.run
        with (
            get_client(sync_client=True) as client,
            Watch(state.at_once, ticket.sweep, first, stop),
            Follower(state, ticket.sweep, Counting(state, ticket.sweep), tally, ticket.run),
            board.kept(),
        ):
            with suppress(*_OVERALL):  # for those who look; the work does not need it
                entitle(client, stamp, tags)
            if lead.lead(ticket, Crew(client, pool, parameters, tags)) is not Ended.OVER:
                return None
        summary, index = lead.finish(begun, ticket)
        with suppress(*_OVERALL):
            board.outcomes(state.outcomes(ticket.sweep, brief=True))
            show_report(state, begun.info, settings, ticket.plan, index)
        return summary


def _beside(work: Callable[[], None], stop: Stop) -> MillError | None:
    """Work in a thread; Prefect raises a cancellation in the main one, which asks for the stop."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            failures.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="work")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except BaseException:
        stop.ask()
        thread.join(_FAREWELL)
        raise
    if not failures:
        return None
    if isinstance(failures[0], MillError):
        return failures[0]
    raise failures[0]
