"""A worker slot of a fleet: the loop of a local sweep, in a process of Prefect's worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from feed.errors import Outage
from feed.publisher import Publisher
from flows.cli.resolution import resolve
from flows.cli.settings import Settings
from flows.fleet.needs import Words, from_text, groups_of, serves, words_here
from flows.fleet.orders import VARIABLE as ORDERS
from flows.fleet.orders import Orders
from flows.fleet.patience import PatientState, open_patiently, patiently
from flows.fleet.ticket import Ticket, read_ticket
from flows.fleet.watch import StoppedElsewhere, Watch, end_for_all
from flows.slot.loop import RunModel, run_slots
from flows.sweep.lifecycle import Begun
from flows.sweep.local import open_slots
from flows.sweep.stop import Stop
from flows.sweep.workspace import Workspace
from matrix.errors import Exit, UsageError

WORDS = "MODELMILL_WORKER_WORDS"
FOLDER = "MODELMILL_WORKER_FOLDER"
"""Relative settings start there: Prefect's worker runs everything in a throw-away folder."""


def state_url(settings: Settings) -> str:
    """Where a fleet's state is."""
    where = str(settings.state or "")
    if "://" not in where:
        raise UsageError(
            "a fleet needs its state in PostgreSQL", hint="set --state or MODELMILL_STATE"
        )
    return where


@dataclass(slots=True)
class Slot:
    """One slot run: from the ids of a sweep and its run to nothing left to do."""

    sweep: int
    run: int
    environ: Mapping[str, str]
    stop: Stop

    def work(self, run_model: RunModel) -> None:
        """Lease and build until nothing is left that this machine may build."""
        cwd = Path(self.environ.get(FOLDER, ".")).absolute()
        with open_patiently(state_url(resolve({}, self.environ, cwd)), self.stop) as state:
            ticket = read_ticket(state, self.sweep, self.run, self.stop)
            settings = ticket.settings(self.environ, cwd)
            folder = self.environ.get(ORDERS)
            orders = Orders(Path(folder)) if folder else None
            watch = Watch(state.at_once, self.sweep, self.run, self.stop, orders)
            # A cancelled sweep or a draining worker does not even begin.
            patiently(watch.look, self.stop)
            if self.stop or watch.closing.is_set():
                return
            with watch:
                if orders is None:
                    self._run(state, ticket, settings, run_model, watch)
                else:
                    with orders.busy():
                        self._run(state, ticket, settings, run_model, watch)
            if self._cannot_publish():
                end_for_all(state, self.sweep, self.stop.error)

    def _run(
        self,
        state: PatientState,
        ticket: Ticket,
        settings: Settings,
        run_model: RunModel,
        watch: Watch,
    ) -> None:
        work = Workspace(settings)
        work.prepare()
        feed = work.open_feed()
        info = next(one for one in state.sweeps() if one.id == ticket.sweep)
        publisher = Publisher(feed, tries=settings.tries) if info.publish else None
        begun = Begun(info, ticket.newest, 0)
        with open_slots(
            ticket.plan, begun, state, settings, publisher, self.stop, slots_here=1
        ) as (sweep, slots):
            groups = groups_of(ticket.plan, ticket.values, state.history())
            sweep.among = able(groups, self._words(settings))
            sweep.closing = watch.closing
            run_slots(sweep, slots, run_model)

    def _words(self, settings: Settings) -> Words:
        told = from_text(self.environ.get(WORDS))
        return told or words_here(settings, [settings.engine])

    def _cannot_publish(self) -> bool:
        error = self.stop.error
        if error is None or isinstance(error, StoppedElsewhere):
            return False
        return isinstance(error, Outage) or error.exit_code is Exit.HOST_CANNOT_PUBLISH


def able(groups: Mapping[Words, frozenset[str]], words: Words) -> frozenset[str]:
    """The models that a machine with these words may be given."""
    return frozenset().union(*(names for needs, names in groups.items() if serves(words, needs)))
