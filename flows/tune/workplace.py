"""What a tuning uses on a machine: it builds, verifies and traces there, plans from that, and
says where the gain of a champion comes from."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.measure.subjects import Choice, Finder, finding
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from flows.trace.difference import difference
from flows.tune.insight import graph_insight, graphs_of, with_session, with_trace
from flows.tune.knowledge import Knowledge, load_knowledge
from flows.tune.ordering import Situation, architecture_of, device_of, plan_of, slowest_graph
from flows.tune.place import Made, Place, Planned, Shown
from flows.tune.record import Kept, Making, Tuning
from flows.tune.tuning import TuningRun
from machine.ledger import Ledger
from machine.reservations import DISTURBS
from machine.waits import Cancelled, WaitRules
from matrix.codec import from_json
from matrix.errors import MillError
from matrix.globs import matches
from matrix.hypotheses import Hypothesis
from matrix.model import Cell, Profile
from matrix.overlay import overlay, trial_digest
from matrix.trials import TuningStatus
from matrix.verification import Rung
from state.errors import StateError
from workers.build.builder import Builder
from workers.build.built import Built
from workers.compile.devices import available
from workers.host.watch import Watching
from workers.measure.benchmark import Driver
from workers.measure.quiet import quiet
from workers.measure.result import Benchmark, this_machine
from workers.measure.subject import Graph
from workers.measure.trace.operators import Window
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
MOST_GROUPS = 25
Json = dict[str, Any]


@dataclass(slots=True)
class Workplace:
    """Makes tunings of one engine, one after the other. What it builds and checks waits until no
    measurement is made on this machine."""

    settings: Settings
    builder: Builder
    shown: Shown
    ledger: Ledger = field(default_factory=Ledger)
    reserves: bool = False
    """Whether the builder reserves memory and disk for each of its stages. If it does, this tuning
    reserves nothing meanwhile: it would wait for itself behind whoever wants to measure."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set: give up at once; every finished session is kept."""
    log: Path | None = None
    tuning: Tuning = field(init=False)
    """At hand, with what is opened for it."""
    finder: Finder = field(init=False)
    verifier: Verifier = field(init=False)
    knowledge: Knowledge = field(init=False)
    profiles: Sequence[Profile] = field(init=False)

    def tune(
        self, kept: Kept, budget: float | None, conclude: Callable[[], object] = lambda: None
    ) -> None:
        """Go on with a tuning to its end. `conclude` is called before the champion is explained,
        which takes a while and decides nothing."""
        with (
            finding(self.settings, kept.tuning.protocol.threads, self.rules) as self.finder,
            closing(Verifier(self.finder.runtimes, LEVEL)) as self.verifier,
        ):
            self.tuning = kept.tuning
            self.knowledge = load_knowledge(Workspace(self.settings).knowledge)
            self.profiles = _profiles(self.settings, kept.tuning, self.finder.runtimes)
            TuningRun(kept, self, budget).run()
            failed = kept.tuning.status is TuningStatus.FAILED
            if not failed:
                kept.change(tools=dict(self.builder.tools()))
            conclude()
            if kept.tuning.champion and not failed:
                kept.change(explained=explained(kept.tuning, self))

    @property
    def rules(self) -> WaitRules:
        """How it waits for other work on this machine."""
        return WaitRules(cancel=self.cancel, told=self.shown.detail)

    @property
    def watching(self) -> Watching:
        """How it watches the processes that build and measure."""
        return Watching(self.settings.timeout, self.cancel, self.log, self.shown.detail)

    def quiet(self, what: str) -> AbstractContextManager[None]:
        """A time without other work on this machine."""
        told, cancel = self.shown.detail, self.cancel
        return quiet(what, wait=True, ledger=self.ledger, told=told, cancel=cancel)

    def busy(self, what: str) -> AbstractContextManager[object]:
        """A reservation for work that would disturb a measurement."""
        return self.ledger.reserve([DISTURBS], what, self.rules)

    def driver(self) -> Driver:
        """What runs models."""
        return Driver(self.finder.runtimes, self.watching)

    def rest(self, seconds: float) -> object:
        """Let the device recover, unless all ends."""
        return self.cancel.wait(seconds)

    def clock(self) -> float:
        """Seconds."""
        return time.monotonic()

    def profile(self, glob: str) -> Profile | None:
        """The device profile for a glob; None: none that works here."""
        return next((one for one in self.profiles if matches(one.label, [glob])), None)

    def make(self, cell: Cell, session: Mapping[str, str]) -> Made:
        """Build it; what equal stages made before is reused."""
        profile = cell.profile
        choice = Choice(None, profile.label) if profile else Choice(cell.target.label)
        runtime = self.finder.runtime(choice).opening(session)
        with nullcontext() if self.reserves else self.busy(f"build {cell.id}"):
            self.builder.begin_model()
            built = self.builder.build(cell, self.watching)
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
        with self.busy(f"check {made.cell}"):
            return self.verifier.climb(Package.of(made.built), self.watching).rungs

    def trace(self, made: Made, graph: Graph) -> Trace:
        """The trace of a graph of a build."""
        runtimes, watching = self.finder.runtimes, self.watching
        tracer = Tracer(runtimes, lambda: find_viewer(os.environ.get("QNN_SDK_ROOT")), watching)
        with (
            self.quiet(f"{self.tuning.model}: trace of {made.cell}"),
            self.finder.store.scratch.borrow("trace") as folder,
        ):
            plan = TracePlan("basic", WINDOW, self.tuning.protocol.threads)
            return tracer.trace(made.subject, graph, plan, folder)

    def plan(self, baseline: Made, found: Benchmark) -> Planned:
        """What is tried, from the graph of the baseline, its trace and what is known."""
        assert baseline.built is not None
        with self.finder.store.scratch.borrow("insight") as folder:
            graphs = graphs_of(baseline.built, folder)
            insight = graph_insight(self.finder.runtimes.checker, graphs)
        insight = with_trace(insight, self.trace(baseline, slowest_graph(baseline, found)))
        about = Situation(
            cell=self.tuning.cell,
            engine=self.tuning.engine,
            insight=with_session(insight, found),
            findings=self.knowledge.findings.values(),
            device=device_of(found.runtime, this_machine()),
            profiles=self.profiles,
            architecture=architecture_of(baseline),
        )
        space = [from_json(one, Hypothesis) for one in self.tuning.hypotheses]
        return plan_of(about, {one.id: one for one in space}, self.knowledge)


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


def explained(tuning: Tuning, place: Place) -> Json:
    """`groups` of operators, the largest difference first, or a `reason` why there are none.

    No verdict rests on it, so whatever fails here costs the explanation alone.
    """
    change = tuning.step(tuning.champion).hypothesis
    try:
        profile = place.profile(change.compiled) if change.compiled else None
        champion = overlay(tuning.cell, change, profile)
        traces = []
        for cell, session in ((tuning.cell, {}), (champion, change.runtime)):
            place.shown.doing(f"tracing {cell.id}", 0.0)
            made = place.make(cell, session)
            try:
                graphs = sorted(made.subject.graphs, key=lambda one: one.component)
                traces.append([(one.component, place.trace(made, one)) for one in graphs])
            finally:
                made.release()
    except (StateError, Cancelled):
        raise
    except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
        why = str(error) if isinstance(error, MillError) else repr(error)
        return {"reason": f"they could not be traced: {why}"}
    before, after = traces
    parts = [[name for name, _ in traces] for traces in (before, after)]
    if parts[0] != parts[1]:
        return {"reason": "they cannot be compared: their graphs differ"}
    for _, one in (*before, *after):
        if not one.usable or not one.operators:
            return {"reason": f"they could not be traced: {one.error or 'it shows no operator'}"}
    groups = [
        {**asdict(group), "name": f"{component}/{group.name}" if component else group.name}
        for (component, was), (_, now) in zip(before, after, strict=True)
        for group in difference(was, now).groups
    ]
    groups.sort(key=lambda one: -abs(one["delta_us"]))
    return {"groups": groups[:MOST_GROUPS]}
