"""A worker slot of a fleet: the loop of a local sweep, in a process of Prefect's worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID

from flows.fleet.lead import ParentWatch
from flows.fleet.run import FLAGS, FleetRun, read_run, state_url
from flows.fleet.worker_folder import CWD, WORDS, WorkerFolder
from flows.plan.needs import words_here
from flows.prefect.display import Display
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.slot.slots import open_slots, owners_here, run_slots, usual
from flows.stop import Stop
from flows.sweep.cancellation import CancellationWatch
from flows.sweep.lifecycle import Sweep
from flows.tune.leased import tuning_kind
from matrix.needs import from_text
from state.database import Patience
from state.state import State, open_state

_LOOK = 5.0
"""Seconds between two looks whether the parent lives."""
TURN = 600.0
"""Seconds after which a slot makes room, if another sweep waits."""


@dataclass
class SlotWatch(CancellationWatch):
    """Also notices that the worker drains, that another sweep waits for this slot, and that the
    sweep has no parent."""

    worker: WorkerFolder | None = None
    parents: ParentWatch | None = None
    closing: threading.Event = field(default_factory=threading.Event)
    """Set: lease no other model."""
    _began: float = field(default_factory=time.monotonic)
    _looked: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Look once; the worker first, for the database may be away."""
        if self.worker is not None:
            if self.worker.stopping:
                self.stop.ask()
            elif self.worker.draining:
                self.closing.set()
        super().check()
        if self.parents and not self.stop and time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            self.parents.look()
        if time.monotonic() - self._began > TURN and self._others_wait():
            self.closing.set()

    def _others_wait(self) -> bool:
        return any(
            one.ended_at is None and one.id != self.sweep and self.state.remaining(one.id).todo
            for one in self.state.sweeps()
        )


@dataclass(slots=True)
class FleetSlot:
    """One slot run: leases and builds until nothing is left that this machine can build."""

    sweep: int
    run: int
    environ: Mapping[str, str]
    stop: Stop
    flow_run: UUID | None = None
    """The flow run around it, which shows its models."""
    ask: Callable[[FleetRun, str], bool] | None = None
    """Asks for another parent, in the pool of this slot."""

    def work(self) -> None:
        """From the ids of the sweep and its run to the end."""
        cwd = Path(self.environ.get(CWD, ".")).absolute()
        patience = Patience(self.stop.wait)
        where = state_url(resolve({}, self.environ, cwd))
        with open_state(where, patience=patience) as state:
            run = read_run(state, self.sweep, self.run, self.stop)
            settings = run.settings(self.environ, cwd)
            worker = WorkerFolder.of(self.environ)
            watch = SlotWatch(state.at_once, self.sweep, self.run, self.stop, worker=worker)
            # A cancelled sweep or a draining worker does not even begin.
            patience.through(watch.check)
            if self.stop or watch.closing.is_set():
                return
            if self.ask:
                watch.parents = ParentWatch(
                    state.at_once,
                    self.sweep,
                    self.run,
                    settings.start_limit,
                    partial(self.ask, run),
                )
            with watch, worker.busy() if worker else nullcontext():
                self._build(state, run, settings, watch)

    def _build(self, state: State, run: FleetRun, settings: Settings, watch: SlotWatch) -> None:
        work = Workspace(settings)
        work.prepare()
        sweep = Sweep(run.plan, settings, state, work.open_feed(), self.stop, newest=run.newest)
        sweep.flags = FLAGS
        sweep.patience = Patience(self.stop.wait).seconds
        sweep.is_recorded(state.sweep(run.sweep))
        began, shown_at = state.last_event(run.sweep), self.flow_run
        display = Display(sweep, began, owners_here(), self.environ, flow_run=shown_at)
        words = from_text(self.environ.get(WORDS)) or words_here(settings, [settings.engine])
        with (
            display if self.flow_run else nullcontext(),
            open_slots(sweep, 1, words) as (context, slots),
        ):
            context.closing = watch.closing
            context.tuning = run.tuning or {}
            run_slots(context, slots, usual if run.tuning is None else tuning_kind)
