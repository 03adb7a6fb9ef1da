"""What a tuning uses on a machine: it builds, verifies and traces there, and plans from that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from flows.measure.measured import Choice, Finder, finding
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.tune.explaining import explained
from flows.tune.insight import graph_insight, graphs_of, with_session, with_trace
from flows.tune.knowledge import Knowledge, load_knowledge
from flows.tune.ordering import Situation
from flows.tune.planning import architecture_of, device_of, plan_of, slowest_graph
from flows.tune.record import Kept, Making, Tuning
from flows.tune.tools import Made, Planned, Shown, Tools
from flows.tune.tuning import TuningRun
from machine.ledger import Ledger
from machine.reservations import DISTURBS
from machine.waits import WaitRules
from matrix.codec import from_json
from matrix.globs import matches
from matrix.hypotheses import Hypothesis
from matrix.model import Cell, Profile
from matrix.overlay import trial_digest
from matrix.trials import TuningStatus
from workers.build.builder import Builder
from workers.build.built import Built
from workers.build.stages import Rung
from workers.compile.devices import available
from workers.host.watch import Watching
from workers.measure.quiet import quiet
from workers.measure.result import Benchmark, this_machine
from workers.measure.running import Driver
from workers.measure.subject import Graph
from workers.measure.trace.readings import Window
from workers.measure.trace.result import Trace
from workers.measure.trace.tracer import Plan as TracePlan
from workers.measure.trace.tracer import Tracer
from workers.measure.trace.viewer import find_viewer
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime
from workers.verify.ladder.subject import Subject as Package
from workers.verify.verifier import Verifier

LEVEL = "task"
"""Parity, and the catalog's task metric if it has one."""
WINDOW = Window(5, 30)
"""Runs of a trace: enough to put operators in order."""


@dataclass(slots=True)
class Workplace:
    """Makes tunings of one engine."""

    settings: Settings
    builder: Builder
    shown: Shown
    ledger: Ledger = field(default_factory=Ledger)
    reserves: bool = False
    """Whether the builder reserves for each of its stages: a place that were held meanwhile would
    keep everybody waiting, us behind whoever wants to measure."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set: give up at once; every finished session is kept."""
    log: Path | None = None

    def tune(
        self, kept: Kept, budget: float | None, conclude: Callable[[], object] = lambda: None
    ) -> None:
        """Go on with a tuning to its end. `conclude` is called before the champion is explained,
        which takes a while and decides nothing."""
        with (
            finding(self.settings, kept.tuning.protocol.threads, self.rules) as finder,
            closing(Verifier(finder.runtimes, LEVEL)) as verifier,
        ):
            opened = OpenWorkplace(self, kept.tuning, finder, verifier)
            tools = opened.tools()
            TuningRun(kept, tools, budget).run()
            failed = kept.tuning.status is TuningStatus.FAILED
            if not failed:
                kept.change(tools=dict(self.builder.tools()))
            conclude()
            if kept.tuning.champion and not failed:
                kept.change(explained=explained(kept.tuning, tools, opened.trace))

    @property
    def rules(self) -> WaitRules:
        """How it waits for other work on this machine."""
        return WaitRules(cancel=self.cancel, told=self.shown.detail)

    @property
    def watching(self) -> Watching:
        """How it watches the processes that build and measure."""
        return Watching(self.settings.timeout, self.cancel, self.log, self.shown.detail)

    def alone(self, what: str) -> AbstractContextManager[None]:
        """Quiet for a measurement."""
        told, cancel = self.shown.detail, self.cancel
        return quiet(what, wait=True, ledger=self.ledger, told=told, cancel=cancel)

    def busy(self, what: str) -> AbstractContextManager[object]:
        """A reservation for work that would disturb a measurement."""
        return self.ledger.reserve([DISTURBS], what, self.rules)


@dataclass(slots=True)
class OpenWorkplace:
    """A workplace with the runtimes and the verifier of one tuning. What it builds and checks waits
    until no measurement is made on this machine."""

    place: Workplace
    tuning: Tuning
    finder: Finder
    verifier: Verifier

    def tools(self) -> Tools:
        """What the tuning works with."""
        place = self.place
        knowledge = load_knowledge(Workspace(place.settings).knowledge)
        profiles = _profiles(place.settings, self.tuning, self.finder.runtimes)
        return Tools(
            maker=self,
            driver=lambda: Driver(self.finder.runtimes, place.watching),
            quiet=place.alone,
            rest=place.cancel.wait,
            clock=time.monotonic,
            planner=partial(self._plan, knowledge, profiles),
            profile=lambda glob: next(
                (one for one in profiles if matches(one.label, [glob])), None
            ),
            shown=place.shown,
        )

    def make(self, cell: Cell, session: Mapping[str, str]) -> Made:
        """Build it; what equal stages made before is reused."""
        place, profile = self.place, cell.profile
        choice = Choice(None, profile.label) if profile else Choice(cell.target.label)
        runtime = self.finder.runtime(choice).opening(session)
        with nullcontext() if place.reserves else place.busy(f"build {cell.id}"):
            place.builder.begin_model()
            built = place.builder.build(cell, place.watching)
        try:
            subject = self.finder.built(built, choice)
        except BaseException:
            built.release()
            raise
        return Made(
            cell=cell.id,
            tree=built.tree,
            artifact=trial_digest((file.entry for file in built.files), session),
            making=_making(built),
            subject=replace(subject, runtime=runtime),
            built=built,
        )

    def check(self, made: Made) -> tuple[Rung, ...]:
        """Judge it; equal bytes were examined once already."""
        assert made.built is not None
        with self.place.busy(f"check {made.cell}"):
            return self.verifier.climb(Package.of(made.built), self.place.watching).rungs

    def trace(self, made: Made, graph: Graph) -> Trace:
        """The trace of a graph of a build."""
        runtimes, watching = self.finder.runtimes, self.place.watching
        tracer = Tracer(runtimes, lambda: find_viewer(os.environ.get("QNN_SDK_ROOT")), watching)
        with (
            self.place.alone(f"{self.tuning.model}: trace of {made.cell}"),
            self.finder.store.scratch.borrow("trace") as folder,
        ):
            plan = TracePlan("basic", WINDOW, self.tuning.protocol.threads)
            return tracer.trace(made.subject, graph, plan, folder)

    def _plan(
        self, knowledge: Knowledge, profiles: Sequence[Profile], made: Made, found: Benchmark
    ) -> Planned:
        assert made.built is not None
        with self.finder.store.scratch.borrow("insight") as folder:
            graphs = graphs_of(made.built, folder)
            insight = graph_insight(self.finder.runtimes.checker, graphs)
        insight = with_trace(insight, self.trace(made, slowest_graph(made, found)))
        about = Situation(
            cell=self.tuning.cell,
            engine=self.tuning.engine,
            insight=with_session(insight, found),
            findings=knowledge.findings.values(),
            device=device_of(found.runtime, this_machine()),
            profiles=profiles,
            architecture=architecture_of(made),
        )
        space = [from_json(one, Hypothesis) for one in self.tuning.hypotheses]
        return plan_of(about, {one.id: one for one in space}, knowledge)


def settings_for(settings: Settings, tuning: Tuning) -> Settings:
    """The settings by which a tuning builds and verifies."""
    return replace(settings, engine=tuning.engine, verify=LEVEL)


def _profiles(settings: Settings, tuning: Tuning, runtimes: Runtimes) -> list[Profile]:
    """What can be compiled for here, of the target."""
    work = Workspace(settings)
    own = [one for one in work.profiles() if one.target == tuning.cell.target.label]
    found = available(runtimes, own, work.targets(), emulated=settings.emulated)
    return [profile for profile, here in found if isinstance(here, Runtime)]


def _making(built: Built) -> Making:
    names = [(f"{run.stage} {run.component}".rstrip(), run.reused) for run in built.stages]
    return Making(
        seconds=round(built.seconds, 3),
        ran=tuple(name for name, reused in names if not reused),
        reused=tuple(name for name, reused in names if reused),
    )
