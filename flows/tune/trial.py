"""One trial, from its hypothesis to its verdict: built, checked, screened, compared, confirmed.

Every step is recorded when it is done, and an interrupted trial continues with the next step. A
step that does not fit into the budget is not begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from flows.tune.decision import REGRESSION, after_confirmation, confirm, decide
from flows.tune.measuring import Measured, Measuring, Side
from flows.tune.place import Made, Place
from flows.tune.record import BASELINE, Kept, Step, Trial
from machine.waits import Cancelled, Told, untold
from matrix.errors import MillError, UsageError
from matrix.overlay import overlay
from matrix.status import FailureClass
from matrix.trials import Phase, SessionKind, Verdict
from matrix.verification import Rung
from state.errors import StateError
from workers.errors import BuildFailed
from workers.measure.comparison import ROUNDS, SETTLE
from workers.measure.result import Benchmark, Protocol
from workers.verify.ladder.levels import failing

EMULATED = "on an emulator, which is no evidence for the device"
_RUNGS = {
    "loads": Verdict.CRASHED,
    "integrity": Verdict.BUILD_FAILED,
    "policy": Verdict.BUILD_FAILED,
}
"""What it means that a rung does not hold; of others that the trial is inaccurate."""
_FAILURES = {
    FailureClass.TIMEOUT: Verdict.TIMED_OUT,
    FailureClass.CRASH: Verdict.CRASHED,
    FailureClass.MEMORY: Verdict.CRASHED,
}
ARMS = 3
OPENINGS = 2
"""Of each arm in a session."""


class OutOfTime(Exception):
    """The next step does not fit into the budget; says which one."""


@dataclass(slots=True)
class Estimates:
    """Seconds by what they are spent on: a guess from the baseline, then what was seen."""

    guesses: dict[str, float] = field(default_factory=dict)
    seen: dict[str, list[float]] = field(default_factory=dict)

    def guess(
        self, making: float, found: Benchmark, protocols: dict[SessionKind, Protocol]
    ) -> None:
        """From how long the baseline took to build, and how long one of its runs takes."""
        self.guesses["make"] = making
        run = sum(graph.latency.p50 for graph in found.graphs if graph.latency) / 1000
        opening = sum(one.open_warm for graph in found.graphs for one in graph.sessions[:1])
        for kind, protocol in protocols.items():
            turn = (protocol.warmup + protocol.iterations + ROUNDS) * run + ROUNDS * SETTLE
            self.guesses[kind.value] = protocol.sessions * ARMS * (turn + OPENINGS * opening)

    def note(self, what: str, seconds: float) -> None:
        """What something has taken."""
        self.seen.setdefault(what, []).append(seconds)

    def of(self, what: str) -> float:
        """What it will take."""
        return fmean(self.seen[what]) if what in self.seen else self.guesses.get(what, 0.0)

    def trial(self) -> float:
        """A whole one that turns out well: built, screened, compared and confirmed."""
        return self.of("make") + sum(map(self.of, SessionKind))

    def usual(self) -> float:
        """A whole one that is not confirmed."""
        return self.trial() - self.of(SessionKind.CONFIRMATION)


@dataclass(slots=True)
class Budget:
    """The time that this run of a tuning may take."""

    clock: Callable[[], float]
    seconds: float | None = None
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.clock() - self.began

    def need(self, seconds: float, what: str) -> None:
        """Raise `OutOfTime` unless so much is left."""
        if self.seconds is not None and self.spent + seconds > self.seconds:
            raise OutOfTime(what)


class Settled(Exception):
    """A trial has its verdict."""

    def __init__(self, verdict: Verdict, why: str, **values: Any) -> None:
        super().__init__(why)
        self.values = {"verdict": verdict, "why": why, **values}


@dataclass(slots=True)
class TrialRun:
    """A trial on its way, with what all trials of its tuning share."""

    kept: Kept
    place: Place
    measuring: Measuring
    baseline: Made
    estimates: Estimates
    budget: Budget
    level: float
    """How often an interval may miss the truth, by the number of trials."""
    step: Step
    trial: Trial
    doing: Told = untold

    def run(self) -> Trial:
        """Settle it. Raises `OutOfTime` before a step that does not fit."""
        began, before = self.budget.clock(), self.trial.seconds
        try:
            self.budget.need(self.estimates.trial(), f"{self.step.key} was not begun")
            made = self._make()
            try:
                self._compare(made)
            finally:
                made.release()
        except Settled as settled:
            self._keep(**settled.values)
        except (StateError, Cancelled, OutOfTime):
            raise
        except Exception as error:  # noqa: BLE001 - a tool or a disk can raise anything
            why = str(error) if isinstance(error, MillError) else repr(error)
            self._keep(verdict=Verdict.CRASHED, why=why)
        finally:
            seconds = before + self.budget.clock() - began
            self._keep(seconds=round(seconds, 3))
        return self.trial

    def _keep(self, **values: Any) -> None:
        self.trial = self.kept.put(replace(self.trial, **values))

    def _make(self) -> Made:
        hypothesis = self.step.hypothesis
        self.doing("building")
        began = self.budget.clock()
        try:
            profile = self.place.profile(hypothesis.compiled) if hypothesis.compiled else None
            cell = overlay(self.kept.tuning.cell, hypothesis, profile)
            made = self.place.make(cell, hypothesis.runtime)
        except UsageError as error:
            raise Settled(Verdict.SKIPPED, str(error)) from error
        except BuildFailed as error:
            timed_out = error.failure is FailureClass.TIMEOUT
            verdict = Verdict.TIMED_OUT if timed_out else Verdict.BUILD_FAILED
            raise Settled(verdict, str(error)) from error
        self.estimates.note("make", self.budget.clock() - began)
        if self.trial.artifact not in {"", made.artifact}:
            # The tools changed meanwhile: what was measured is another artifact.
            self._keep(
                screen=None, judgement=None, decision=None, confirmation=None, confirmed=None,
                warnings=(), crashes=(),
            )  # fmt: skip
        self._keep(cell=made.cell, tree=made.tree, artifact=made.artifact, making=made.making)
        return made

    def _compare(self, made: Made) -> None:
        if same := self._same(made):
            title = "the baseline" if same == BASELINE else same
            raise Settled(Verdict.SAME, f"the same artifact as {title}", same_as=same)
        self._check(made)
        self._screen(made)
        if self.trial.judgement is None:
            found = self._measured(SessionKind.COMPARISON, made)
            self._keep(judgement=found.judgement, warnings=found.warnings)
        assert self.trial.judgement is not None
        decision = decide(self.trial.judgement, self.kept.tuning.min_gain)
        self._keep(decision=decision)
        if decision.verdict is not Verdict.BETTER:
            raise Settled(decision.verdict, decision.why)
        self._confirm(made)

    def _same(self, made: Made) -> str:
        """The key of an earlier trial with this artifact."""
        if made.artifact == self.baseline.artifact:
            return BASELINE
        earlier = (
            one.key
            for one in self.kept.trials.values()
            if one.artifact == made.artifact
            and one.position < self.trial.position
            and one.verdict is not Verdict.SAME
        )
        return next(earlier, "")

    def _check(self, made: Made) -> None:
        self.doing("checking")
        began = self.budget.clock()
        try:
            rungs = self.place.check(made)
        except BuildFailed as error:
            verdict = _FAILURES.get(error.failure, Verdict.BUILD_FAILED)
            raise Settled(verdict, str(error)) from error
        took = round(self.budget.clock() - began, 3)
        self._keep(accuracy=rungs, making=replace(made.making, checking=took))
        if broken := first_broken(rungs):
            verdict = _RUNGS.get(broken.name, Verdict.INACCURATE)
            raise Settled(verdict, f"{broken.name}: {broken.detail}")

    def _screen(self, made: Made) -> None:
        if self.trial.screen is None:
            found = self._measured(SessionKind.SCREEN, made)
            assert found.judgement is not None
            self._keep(screen=round(found.judgement.ratio, 4))
        assert self.trial.screen is not None
        if self.trial.screen >= REGRESSION:
            why = f"{self.trial.screen:.2f} times the baseline's time when it was screened"
            raise Settled(Verdict.WORSE, why)

    def _confirm(self, made: Made) -> None:
        needed = self.estimates.of(SessionKind.CONFIRMATION)
        self.budget.need(needed, f"{self.step.key} looks better and was not confirmed")
        found = self._measured(SessionKind.CONFIRMATION, made)
        assert found.judgement is not None
        told = confirm(found.judgement, self.kept.tuning.min_gain)
        self._keep(confirmation=found.judgement, confirmed=told)
        verdict, why = after_confirmation(told)
        if verdict is Verdict.BETTER and made.subject.runtime.emulated:
            why = f"{why}; {EMULATED}"
        raise Settled(verdict, why)

    def _measured(self, kind: SessionKind, made: Made) -> Measured:
        """Sessions of a kind; a trial that crashes in them is settled."""
        mine = Side(self.trial.key, made.artifact, made.subject)
        base = Side(BASELINE, self.baseline.artifact, self.baseline.subject)
        swapped = kind is SessionKind.CONFIRMATION
        self.doing(_DOING[kind])
        began = self.measuring.seconds
        found = self.measuring.measure(
            self.trial.key,
            kind,
            base if swapped else mine,
            mine if swapped else base,
            tuple(one for one in self.trial.crashes if one.kind is kind),
            self.level,
            lambda crash: self._keep(crashes=(*self.trial.crashes, crash)),
        )
        if found.fresh:
            self.estimates.note(kind.value, self.measuring.seconds - began)
        if found.judgement is None:
            last = found.crashes[-1]
            whose = "" if found.whose == self.trial.key else "the baseline beside it: "
            raise Settled(found.verdict, f"{whose}{last.message}")
        return found


_DOING: Mapping[SessionKind, str] = {
    SessionKind.SCREEN: "screening",
    SessionKind.COMPARISON: "comparing",
    SessionKind.CONFIRMATION: "confirming",
}


def first_broken(rungs: tuple[Rung, ...]) -> Rung | None:
    """The rung that does not hold: a failed one explains those that could not be judged."""
    broken = failing(rungs)
    failed = [rung for rung in broken if rung.passed is False]
    return next(iter(failed or broken), None)


def trial_of_step(step: Step, position: int, phase: Phase) -> Trial:
    """A trial as it begins; one that is skipped has its verdict already."""
    return Trial(
        key=step.key,
        title=step.title,
        hypotheses=step.hypotheses,
        settings=step.settings,
        phase=phase,
        position=position,
        verdict=Verdict.SKIPPED if step.skip else None,
        why=step.skip,
    )
