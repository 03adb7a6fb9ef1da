"""What a tuning uses on a machine: a builder, runtimes, a verifier, and quiet for measuring."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from flows.cli.settings import Settings
from flows.packages.measured import Finder, finding
from flows.sweep.workspace import Workspace
from flows.tune.estimates import Budget
from flows.tune.explaining import explained
from flows.tune.kept import Kept
from flows.tune.knowledge import load_knowledge
from flows.tune.making import LEVEL, Workshop
from flows.tune.planning import Planning
from flows.tune.record import Tuning
from flows.tune.tuning import Shown, Tools, TuningRun
from machine.ledger import Ledger
from machine.reservations import DISTURBS
from machine.waits import WaitRules
from matrix.codec import from_json
from matrix.globs import matches
from matrix.hypotheses import Hypothesis
from matrix.model import Profile
from matrix.trials import TuningStatus
from workers.build.builder import Builder
from workers.compile.devices import available
from workers.host.watch import Watching
from workers.measure.quiet import quiet
from workers.measure.running import Driver
from workers.measure.trace.tracer import Tracer
from workers.measure.trace.viewer import find_viewer
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import Runtime
from workers.verify.verifier import Verifier


@dataclass(slots=True)
class Workplace:
    """Makes tunings of one engine."""

    settings: Settings
    builder: Builder
    shown: Shown
    ledger: Ledger = field(default_factory=Ledger)
    reserves: bool = False
    """As in `flows.tune.making.Workshop`."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set: give up at once; every finished session is kept."""
    log: Path | None = None
    planned: Callable[[], object] = lambda: None
    """As in `flows.tune.tuning.Tools`."""

    def tune(
        self, kept: Kept, budget: float | None, conclude: Callable[[], object] = lambda: None
    ) -> None:
        """Go on with a tuning to its end. `conclude` is called before the champion is explained,
        which takes a while and decides nothing."""
        with (
            finding(self.settings, kept.tuning.protocol.threads, self._rules) as finder,
            closing(Verifier(finder.runtimes, LEVEL)) as verifier,
        ):
            tracer = Tracer(
                finder.runtimes, lambda: find_viewer(os.environ.get("QNN_SDK_ROOT")), self._watching
            )
            tools = self._tools(kept.tuning, finder, verifier, tracer)
            TuningRun(kept, tools, Budget(time.monotonic, budget)).run()
            failed = kept.tuning.status is TuningStatus.FAILED
            if not failed:
                kept.change(tools=dict(self.builder.tools()))
            conclude()
            if kept.tuning.champion and not failed:
                kept.change(explained=explained(kept.tuning, tools, finder, tracer))

    def _tools(self, tuning: Tuning, finder: Finder, verifier: Verifier, tracer: Tracer) -> Tools:
        shown = self.shown
        knowledge = load_knowledge(Workspace(self.settings).knowledge)
        profiles = _profiles(self.settings, tuning, finder.runtimes)
        planning = Planning(
            tuning, _space(tuning), knowledge, profiles, finder, tracer, self._alone
        )
        return Tools(
            maker=Workshop(
                self.builder, verifier, finder, self._busy, self._watching, self.reserves
            ),
            driver=lambda: Driver(finder.runtimes, self._watching),
            quiet=self._alone,
            rest=self.cancel.wait,
            clock=time.monotonic,
            planner=planning.plan,
            profile=lambda glob: next(
                (one for one in profiles if matches(one.label, [glob])), None
            ),
            shown=shown,
            planned=self.planned,
        )

    @property
    def _rules(self) -> WaitRules:
        return WaitRules(cancel=self.cancel, told=self.shown.detail)

    @property
    def _watching(self) -> Watching:
        return Watching(self.settings.timeout, self.cancel, self.log, self.shown.detail)

    def _alone(self, what: str) -> AbstractContextManager[None]:
        told, cancel = self.shown.detail, self.cancel
        return quiet(what, wait=True, ledger=self.ledger, told=told, cancel=cancel)

    def _busy(self, what: str) -> AbstractContextManager[object]:
        return self.ledger.reserve([DISTURBS], what, self._rules)


def settings_for(settings: Settings, tuning: Tuning) -> Settings:
    """The settings by which a tuning builds and verifies."""
    return replace(settings, engine=tuning.engine, verify=LEVEL)


def _space(tuning: Tuning) -> dict[str, Hypothesis]:
    found = [from_json(one, Hypothesis) for one in tuning.hypotheses]
    return {one.id: one for one in found}


def _profiles(settings: Settings, tuning: Tuning, runtimes: Runtimes) -> list[Profile]:
    """What can be compiled for here, of the target."""
    work = Workspace(settings)
    own = [one for one in work.profiles() if one.target == tuning.cell.target.label]
    found = available(runtimes, own, work.targets(), emulated=settings.emulated)
    return [profile for profile, here in found if isinstance(here, Runtime)]
