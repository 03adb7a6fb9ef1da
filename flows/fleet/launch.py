"""`sweep --fleet`: hand a plan to the fleet and follow it through the state."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flows.cli.activity import waiting_for
from flows.cli.settings import Settings
from flows.fleet.connection import reached
from flows.fleet.patience import PatientState
from flows.fleet.slot import state_url
from flows.fleet.ticket import Ticket, write_ticket
from flows.fleet.watch import end_for_all
from flows.observe.durations import LastRun
from flows.observe.estimates import estimate
from flows.observe.follower import Follower
from flows.observe.summaries import clear_summaries, write_summaries
from flows.observe.summary import summarize
from flows.observe.tally import Tally
from flows.observe.views import choose_view
from flows.prefect.names import PARENT_FLOW
from flows.sweep.earlier_failures import take_up
from flows.sweep.index import index_line
from flows.sweep.lifecycle import cell_rows, model_rows
from flows.sweep.planning import selection_of
from flows.sweep.sizes import size_of
from flows.sweep.stop import Stop, stopped_by_signals
from flows.sweep.workspace import Workspace
from matrix.errors import Exit, MillError, UsageError
from matrix.model import Plan
from state.errors import StateUnavailable
from state.ledger import State, open_state
from state.records import Kind, SweepInfo

_LOOK = 0.5
_ASK_PREFECT = 10
"""Every so many looks; it is only asked whether the parent died."""

RELEASED = 20.0
"""Seconds in which the slots of a cancelled sweep hand back what they hold."""


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
        """Order, follow, say how it ended."""
        self.check()
        if self.settings.summary:
            clear_summaries(self.settings.path(self.settings.summary))
        stop = Stop()
        with open_state(state_url(self.settings)) as opened, stopped_by_signals(stop, RELEASED + 5):
            state = PatientState(opened, stop)
            ticket = self._order(state)
            with reached():
                flow_run = submit(self.pool, ticket)
            self._follow(state, ticket, flow_run, stop)
            if stop:
                cancel_sweep(opened, ticket.sweep)
            if self.settings.summary:
                info = sweep_of(opened, ticket.sweep)
                write_summaries(self.settings.path(self.settings.summary), opened, info)
            return self._say_ended(opened, ticket, stop)

    def check(self) -> None:
        """Before anything is recorded: does the server answer, and does it know this fleet?"""
        waiting_for("asking the Prefect server")
        if not os.environ.get("PREFECT_API_URL"):
            raise UsageError("--fleet needs a Prefect server", hint="set PREFECT_API_URL")
        with reached():
            check_deployed(self.pool)

    def _order(self, state: State) -> Ticket:
        work = Workspace(self.settings)
        feed = work.open_feed()
        info = state.begin(
            self.plan.stamp,
            feed.name,
            cell_rows(self.plan),
            model_rows(self.plan, state),
            {**self.values, "feed": feed.name},
            selection_of(self.settings).to_json(),
            publish=not self.settings.no_publish,
        )
        wanted = {row.cell for row in cell_rows(self.plan)}
        earlier = take_up(state, info, wanted, again=self.again)
        ticket = Ticket(info.id, self.plan, self.values, feed.name)
        run = write_ticket(state, ticket)
        if not self.as_json:
            print(f"sweep {self.plan.stamp}: {size_of(self.plan)}")
            print(f"on the fleet {self.pool} -> {feed.name}", flush=True)
            for line in earlier.lines(self.plan.stamp, " --fleet"):
                print(line, flush=True)
        return Ticket(info.id, self.plan, self.values, feed.name, run=run)

    def _follow(self, state: State, ticket: Ticket, flow_run: UUID, stop: Stop) -> None:
        from flows.fleet.ordered import Ordered

        publish = not self.settings.no_publish
        known = estimate(ticket.plan, state)
        tally = Tally(state.statuses(ticket.sweep), publish=publish, known=known)
        looks, parent = 0, Ordered(flow_run, ticket.sweep)
        with Follower(state, ticket.sweep, choose_view(as_json=self.as_json), tally, ticket.run):
            while not stop.wait(_LOOK):
                if sweep_of(state, ticket.sweep).ended_at is not None:
                    return
                looks += 1
                count_slots(state, ticket.sweep, tally)
                if looks % _ASK_PREFECT == 0 and parent.gone():
                    if sweep_of(state, ticket.sweep).ended_at is not None:
                        return
                    raise ParentLost(
                        f"the parent of sweep {self.plan.stamp} is gone; its slots go on",
                        hint=f"modelmill resume {self.plan.stamp} --fleet",
                    )

    def _say_ended(self, state: State, ticket: Ticket, stop: Stop) -> Exit:
        info = sweep_of(state, ticket.sweep)
        outcomes = state.outcomes(info.id, brief=True)
        summary = summarize(info.stamp, info.feed, outcomes, publish=info.publish)
        code = Exit.INTERRUPTED if stop else Exit(info.exit_code or 0)
        index = [one.data for one in state.events(info.id, ticket.run, kind=Kind.INDEX)]
        found = index[-1] if index else None
        took = LastRun.of(state, info)
        if self.as_json:
            version = found["version"] if found else None
            document = {**summary.to_json(), **took.to_json(), "index": version}
            document["exit_code"] = int(code)
            print(json.dumps({"type": "summary", **document}), flush=True)
            return code
        print("\n".join(summary.lines()))
        if found:
            failed = len(summary.failures)
            print(index_line(self.plan, self.settings.package, found["version"], failed))
        print(took)
        if code in {Exit.INTERRUPTED, Exit.HOST_CANNOT_PUBLISH, Exit.UNUSABLE}:
            text = f"what is built is kept: modelmill resume {info.stamp} --fleet"
            print(text, file=sys.stderr)
        return code


def check_deployed(pool: str) -> None:
    """Whether a fleet of this name was set up."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    try:
        with get_client(sync_client=True) as client:
            client.read_deployment_by_name(f"{PARENT_FLOW}/{pool}")
    except ObjectNotFound:
        raise UsageError(
            f"the Prefect server knows no fleet '{pool}'", hint=f"modelmill deploy --pool {pool}"
        ) from None


def submit(pool: str, ticket: Ticket) -> UUID:
    """Start the parent of a ticket."""
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment

    from flows.fleet.night import handed_on

    stamp = ticket.plan.stamp
    with get_client(sync_client=True) as client:
        night = handed_on(client, ticket.sweep)
    parameters = {"stamp": stamp, "sweep": ticket.sweep, "run": ticket.run, "pool": pool}
    made: Any = run_deployment(
        f"{PARENT_FLOW}/{pool}",
        parameters=parameters,
        timeout=0,
        tags=[f"stamp:{stamp}", f"sweep:{ticket.sweep}", *night],
        idempotency_key=f"{pool}-{ticket.sweep}-{ticket.run}",
    )
    return UUID(str(made.id))


def count_slots(state: State, sweep: int, tally: Tally) -> None:
    """As many slots as hold a lease now: the time left depends on it. They come and go."""
    with suppress(StateUnavailable):  # a restart of the database; the number stays for now
        at_work = {one.owner for one in state.leases(sweep) if not one.expired}
        tally.slots = max(1, len(at_work))


def sweep_of(state: State, sweep: int) -> SweepInfo:
    """As it stands."""
    return next(one for one in state.sweeps() if one.id == sweep)


def cancel_sweep(state: State, sweep: int) -> int:
    """Stop everybody who works on a sweep; returns how many cells that left open.

    Its slots see it within a second or two, hand back and end; a resume plans everything again.
    """
    import time

    waiting_for("telling those who work on the sweep")
    end_for_all(state, sweep, None)
    deadline = time.monotonic() + RELEASED
    while time.monotonic() < deadline and any(not one.expired for one in state.leases(sweep)):
        time.sleep(0.2)
    cancelled = state.cancel_open(sweep)
    if sweep_of(state, sweep).ended_at is None:
        state.end(sweep, Exit.INTERRUPTED)
    return len(cancelled)
