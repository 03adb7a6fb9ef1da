"""A worker slot of a fleet: the loop of a local sweep, in a process of Prefect's worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.fleet.lead import ParentWatch, another_parent
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

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

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


def work_in_slot(
    sweep: int, run_id: int, environ: Mapping[str, str], stop: Stop, here: FlowRun | None
) -> None:
    """Lease and build until nothing is left of a run that this machine can build.

    `here`: the flow run around it, which shows its models, and in whose pool another parent starts.
    """
    cwd, patience = Path(environ.get(CWD, ".")).absolute(), Patience(stop.wait)
    with open_state(state_url(resolve({}, environ, cwd)), patience=patience) as state:
        run = read_run(state, sweep, run_id, stop)
        settings, worker = run.settings(environ, cwd), WorkerFolder.of(environ)
        watch = SlotWatch(state.at_once, sweep, run_id, stop, worker=worker)
        # A cancelled sweep or a draining worker does not even begin.
        patience.through(watch.check)
        if stop or watch.closing.is_set():
            return
        if here and here.work_pool_name:
            ask, limit = partial(another_parent, here.work_pool_name, run), settings.start_limit
            watch.parents = ParentWatch(state.at_once, sweep, run_id, limit, ask)
        with watch, worker.busy() if worker else nullcontext():
            _build(state, run, settings, environ, watch, here)


def _build(
    state: State,
    run: FleetRun,
    settings: Settings,
    environ: Mapping[str, str],
    watch: SlotWatch,
    here: FlowRun | None,
) -> None:
    work = Workspace(settings)
    work.prepare()
    sweep = Sweep(run.plan, settings, state, work.open_feed(), watch.stop, newest=run.newest)
    sweep.flags = FLAGS
    sweep.patience = Patience(watch.stop.wait).seconds
    sweep.is_recorded(state.sweep(run.sweep))
    began, words = state.last_event(run.sweep), from_text(environ.get(WORDS))
    display = here and Display(sweep, began, owners_here(), environ, flow_run=here.id)
    offers = words or words_here(settings, [settings.engine])
    with display or nullcontext(), open_slots(sweep, 1, offers) as (context, slots):
        context.closing = watch.closing
        context.tuning = run.tuning or {}
        run_slots(context, slots, usual if run.tuning is None else tuning_kind)
