"""The tuning of one model on one target: the baseline, single hypotheses, and their combination.

    baseline --> plan --> each hypothesis alone --> confirmed ones together --> champion

The remaining work is read from the records, so an interrupted tuning continues where it stopped, in
the same order.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

from flows.tune.decision import level
from flows.tune.measuring import Measuring
from flows.tune.place import Made, Place
from flows.tune.record import BASELINE, Kept, Step, Trial
from flows.tune.trial import (
    Budget,
    Estimates,
    OutOfTime,
    TrialRun,
    first_broken,
    trial_of_step,
)
from machine.waits import Cancelled
from matrix.codec import to_json
from matrix.errors import MillError
from matrix.overlay import combined
from matrix.trials import Phase, SessionKind, TuningStatus, Verdict
from state.errors import StateError
from workers.errors import StoreError
from workers.measure.result import Benchmark, this_machine


@dataclass(slots=True)
class TuningRun:
    """A tuning on its way."""

    kept: Kept
    place: Place
    limit: InitVar[float | None]
    """Seconds that it may take now; None: as long as it needs."""
    budget: Budget = field(init=False)
    _estimates: Estimates = field(default_factory=Estimates)
    _measuring: Measuring = field(init=False)

    def __post_init__(self, limit: float | None) -> None:
        self.budget = Budget(self.place.clock, limit)
        self._measuring = Measuring(self.kept, self.place)

    def run(self) -> None:
        """Go on to the end, or until the budget is used up. Errors of the state are raised; any
        other one that concerns the whole tuning ends it as failed."""
        self.kept.change(status=TuningStatus.RUNNING, message="", ended=None, concluded=False)
        spent, measuring = self.kept.tuning.spent, self.kept.tuning.measuring
        ended: dict[str, Any] = {"status": TuningStatus.DONE, "message": ""}
        try:
            baseline = self._baseline()
            try:
                self._trials(baseline)
            finally:
                baseline.release()
        except OutOfTime as out:
            ended = {"status": TuningStatus.OUT_OF_TIME, "message": str(out)}
        except (StateError, StoreError, Cancelled):
            ended = {}
            raise
        except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
            why = str(error) if isinstance(error, MillError) else repr(error)
            ended = {"status": TuningStatus.FAILED, "message": why}
        except BaseException:
            ended = {}
            raise
        finally:
            self.kept.change(
                **ended,
                champion=self._champion(),
                spent=round(spent + self.budget.spent, 3),
                measuring=round(measuring + self._measuring.seconds, 3),
            )

    def _baseline(self) -> Made:
        """Built and checked, as every tuning begins; measured when it is planned."""
        kept, place = self.kept, self.place
        self._doing("baseline: building")
        began = place.clock()
        made = place.make(kept.tuning.cell, {})
        try:
            self._doing("baseline: checking")
            rungs = place.check(made)
            if broken := first_broken(rungs):
                raise MillError(
                    f"the baseline fails verification: {broken.name}: {broken.detail}",
                    hint="repair the catalog's entry before tuning it",
                )
            self._same_place(made)
            took = place.clock() - began
            self._doing("baseline: measuring")
            found = self._measuring.alone(made.subject, f"{kept.tuning.model}: baseline")
            for graph in found.graphs:
                if graph.fault is not None:
                    raise MillError(f"the baseline cannot be measured: {graph.fault.message}")
        except BaseException:
            made.release()
            raise
        kept.put(
            Trial(
                key=BASELINE, title="the catalog's own settings", phase=Phase.BASELINE,
                cell=made.cell, tree=made.tree, artifact=made.artifact, making=made.making,
                accuracy=rungs, seconds=round(took, 3),
            )
        )  # fmt: skip
        kinds = {kind: self._measuring.protocol(kind, 0) for kind in SessionKind}
        self._estimates.guess(took, found, kinds)
        self._plan(made, found)
        return made

    def _same_place(self, made: Made) -> None:
        """Sessions of two machines, runtimes or baselines are not mixed.

        On a fleet the machine that began may never come back, so the one that took over measures
        all of it anew. Here its user decides that: raises `MillError`.
        """
        tuning, before = self.kept.tuning, self.kept.trials.get(BASELINE)
        runtime, machine = made.subject.runtime, this_machine()
        known = (tuning.machine, tuning.runtime)
        if before is not None and before.artifact != made.artifact:
            told = "the baseline has changed, because its source or the tools have changed"
        elif tuning.runtime is not None and known != (machine, runtime):
            where = f"{tuning.machine.name if tuning.machine else 'another machine'}"
            told = f"it began on {where} with {tuning.runtime.name} {tuning.runtime.version}"
        else:
            told = ""
        if told and self.kept.held is None:
            raise MillError(told, hint="begin a new tuning")
        if told:
            self.kept.begin_anew(told)
        self.kept.change(machine=machine, runtime=runtime)

    def _plan(self, baseline: Made, found: Benchmark) -> None:
        kept = self.kept
        p50 = sum(graph.latency.p50 for graph in found.graphs if graph.latency)
        if kept.tuning.plan is None:
            planned = self.place.plan(baseline, found)
            kept.change(
                plan=tuple(planned.steps),
                insight=dict(planned.insight),
                architecture=planned.architecture,
                notes=tuple(dict.fromkeys((*kept.tuning.notes, *planned.notes))),
                baseline_ms=p50,
            )
            for note in planned.notes:
                self.place.shown.line(note)

    def _trials(self, baseline: Made) -> None:
        plan, tried = self.kept.tuning.plan or (), self.kept.tuning.tried
        for position, step in enumerate(plan, 1):
            self._trial(baseline, step, position, Phase.SINGLE, f"{position}/{tried - 1}")
        self._combine()
        for position, step in enumerate(self.kept.tuning.combinations or (), len(plan) + 1):
            self._trial(baseline, step, position, Phase.COMBINATION, "together")

    def _trial(self, baseline: Made, step: Step, position: int, phase: Phase, place: str) -> None:
        trial = self.kept.trials.get(step.key)
        if trial is None:
            trial = self.kept.put(trial_of_step(step, position, phase))
        elif trial.settled:
            return
        if not trial.settled:
            trial = TrialRun(
                self.kept, self.place, self._measuring, baseline, self._estimates, self.budget,
                level(self.kept.tuning.tried), step, trial,
                lambda text: self._doing(f"{place} {step.key}: {text}"),
            ).run()  # fmt: skip
        self.place.shown.trial(trial, place)

    def _combine(self) -> None:
        """Plan the combination of what was confirmed, the largest gain first."""
        if self.kept.tuning.combinations is not None:
            return
        made = combined([self.kept.tuning.step(one.key).hypothesis for one in self._won()])
        found: tuple[Step, ...] = ()
        if made.hypothesis is not None:
            one = made.hypothesis
            left = "; ".join(f"without {name}: {why}" for name, why in made.left_out)
            found = (
                Step(
                    key=one.id, title=one.title, hypotheses=made.parts, settings=one.settings,
                    why=f"what was confirmed, together{f' ({left})' if left else ''}",
                    changes=to_json(one),
                ),
            )  # fmt: skip
        self.kept.change(combinations=found)

    def _won(self) -> list[Trial]:
        """Confirmed trials, the largest gain first."""
        won = [one for one in self.kept.trials.values() if one.verdict is Verdict.BETTER]
        return sorted(won, key=lambda one: one.gain.gain if one.gain else 0.0, reverse=True)

    def _champion(self) -> str:
        """The confirmed trial with the largest gain; an emulator has none."""
        won = self._won()
        return won[0].key if won and not self.kept.tuning.emulated else ""

    def _doing(self, text: str) -> None:
        plan = self.kept.tuning.plan or ()
        settled = {key for key, one in self.kept.trials.items() if one.settled}
        left = sum(not step.skip and step.key not in settled for step in plan)
        self.place.shown.doing(text, left * self._estimates.usual())
