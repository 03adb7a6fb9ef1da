"""A tuning and its trials as records, for the state and the reports.

The tuning of one model on one target is a row of the state with its trials, and every finished
session of a trial is kept with the times of all its runs. Tunings that one command began share a
name. Only the fields that queries filter by are columns of the state; everything else is JSON of
these types. `Kept` writes every step of a tuning as soon as it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flows.output.quantity import counted
from flows.tune.decision import Decision
from matrix.codec import from_json, to_json
from matrix.hypotheses import Hypothesis
from matrix.model import Cell
from matrix.trials import Phase, SessionKind, TuningStatus, Verdict
from matrix.verification import Rung
from state.damage import reading
from state.reading import StateReader
from state.records import Lease
from state.tunings import SessionRow, TrialRow, TuningRow
from workers.measure.benchmark import Outcome
from workers.measure.comparison import Finished
from workers.measure.result import Machine, Protocol
from workers.measure.verdict import Judgement
from workers.runtimes.runtime import Runtime

if TYPE_CHECKING:
    from state.state import State

BASELINE = "baseline"
"""The key of the baseline."""
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A trial as it is planned: which hypothesis, and why it is tried or not."""

    key: str
    """The id of its hypothesis, or those of a combination joined by `+`."""
    title: str
    hypotheses: tuple[str, ...]
    settings: tuple[str, ...]
    """`AXIS=VALUE`, as findings name it."""
    why: str = ""
    """Why it has its place in the order."""
    skip: str = ""
    """Why it is not tried."""
    finding: str = ""
    """The id of the finding that skips it or puts it in its place."""
    changes: Json = field(default_factory=dict)
    """A `matrix.hypotheses.Hypothesis`: what it does, also if the files of the space change."""

    @property
    def hypothesis(self) -> Hypothesis:
        """What it does. Raises `ValueError` for changes that another version has recorded."""
        return from_json(self.changes, Hypothesis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """One model on one target."""

    name: str
    model: str
    """`MODEL:TASK`."""
    target: str
    cell: Cell
    """What the baseline is built from."""
    engine: str
    space: str
    """The digest of all hypotheses that were given."""
    hypotheses: tuple[Json, ...] = ()
    """The hypotheses: the files of the space may change meanwhile."""
    protocol: Protocol
    """Of comparisons and confirmations."""
    seed: int
    min_gain: float
    """Percent."""
    budget: float | None = None
    """Seconds that the whole tuning of this model may take; None: as long as it needs."""
    spent: float = 0.0
    """Seconds that it has taken, without the time that it was interrupted for."""
    measuring: float = 0.0
    """Of these, seconds in which something was measured."""
    machine: Machine | None = None
    runtime: Runtime | None = None
    """None: nothing has been measured yet."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of what built its trials."""
    architecture: str = ""
    baseline_ms: float | None = None
    """The median of a run of the baseline (of all its graphs, one after the other), for
    orientation: no verdict rests on it."""
    insight: Json = field(default_factory=dict)
    """A `flows.tune.insight.Insight`."""
    plan: tuple[Step, ...] | None = None
    """In the order in which they are tried, with those that are skipped; None: not planned yet."""
    explained: Json = field(default_factory=dict)
    """Which operators make the difference between champion and baseline: `groups` of a
    `flows.trace.difference.Difference`, or a `reason`."""
    combinations: tuple[Step, ...] | None = None
    """None: it has not come to that yet."""
    champion: str = ""
    """The key of the best confirmed trial; empty: the baseline is the best known."""
    notes: tuple[str, ...] = ()
    status: TuningStatus = TuningStatus.PLANNED
    concluded: bool = False
    """Whether its champion is kept, and what it has seen is learned."""
    message: str = ""
    began: float | None = None
    """Seconds since 1970."""
    ended: float | None = None
    id: int = 0

    def step(self, key: str) -> Step:
        """The step of a trial."""
        steps = (*(self.plan or ()), *(self.combinations or ()))
        return next(one for one in steps if one.key == key)

    @property
    def tried(self) -> int:
        """How many trials are planned. The combination counts from the beginning: what may be said
        of a trial must not depend on what is confirmed."""
        return sum(not step.skip for step in self.plan or ()) + 1

    @property
    def emulated(self) -> bool:
        """Whether its times are no evidence for a device."""
        return self.runtime is not None and self.runtime.emulated


@dataclass(frozen=True, slots=True)
class Making:
    """How an artifact came about."""

    seconds: float
    ran: tuple[str, ...]
    """Stages that ran for it."""
    reused: tuple[str, ...]
    checking: float = 0.0
    """Seconds that the check took."""


@dataclass(frozen=True, slots=True)
class Crash:
    """A session that ended in a failure."""

    kind: SessionKind
    at: str
    """As in `workers.measure.result.Fault`."""
    failure: str
    message: str
    log_tail: str = ""
    iterations: int = 0
    """Of the session; the one retry has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A build of the model, its outcome, and every number that its verdict rests on."""

    key: str
    title: str = ""
    hypotheses: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    phase: Phase = Phase.SINGLE
    position: int = 0
    """In the order of the tuning; the baseline is 0."""
    cell: str = ""
    """The id of the cell that was built."""
    tree: str = ""
    """The digest of its package."""
    artifact: str = ""
    """The digest of what is measured: its models, and how they are opened."""
    same_as: str = ""
    """The key of an earlier trial with the same artifact."""
    making: Making | None = None
    accuracy: tuple[Rung, ...] = ()
    """The rungs of the ladder, with parity and the task metric."""
    screen: float | None = None
    """The time of its screening as a multiple of the baseline's."""
    judgement: Judgement | None = None
    """Of all sessions of the comparison with the baseline; of a composite, of all graphs added."""
    decision: Decision | None = None
    """What that says, corrected for the number of trials."""
    confirmation: Judgement | None = None
    """Of the fresh sessions: the baseline as the subject."""
    confirmed: Decision | None = None
    """What the confirmation says of this trial."""
    crashes: tuple[Crash, ...] = ()
    warnings: tuple[str, ...] = ()
    """What makes its times doubtful: drift, other work on the machine."""
    verdict: Verdict | None = None
    """None: it has none yet, or it is the baseline."""
    why: str = ""
    seconds: float = 0.0
    """That it has taken, in all runs."""

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be done for it."""
        return self.verdict is not None

    @property
    def gain(self) -> Decision | None:
        """The numbers to show: those of the confirmation, if there was one."""
        return self.confirmed or self.decision


@dataclass(frozen=True, slots=True)
class Recorded:
    """A tuning with its trials."""

    tuning: Tuning
    trials: tuple[Trial, ...]

    def trial(self, key: str) -> Trial | None:
        """By key."""
        return next((one for one in self.trials if one.key == key), None)

    @property
    def champion(self) -> Trial | None:
        """The confirmed winner."""
        return self.trial(self.tuning.champion) if self.tuning.champion else None


def recorded(state: StateReader, name: str) -> list[Recorded]:
    """All tunings of a name."""
    found = []
    for row in state.tunings(name):
        with reading(f"the tuning {row.name} of {row.model}"):
            found.append(Recorded(tuning_of(row), tuple(map(trial_of, state.trials(row.id)))))
    return found


def tuning_row(one: Tuning) -> TuningRow:
    """As the state keeps it."""
    return TuningRow(
        name=one.name,
        model=one.model,
        target=one.target,
        status=one.status,
        message=one.message or None,
        began_at=one.began,
        id=one.id,
        detail=_json(one, _IN_ROW),
    )


def tuning_of(row: TuningRow) -> Tuning:
    """From the state. Raises `ValueError` for a row that another program wrote."""
    told = {
        **row.detail, "name": row.name, "model": row.model, "target": row.target,
        "status": row.status, "message": row.message or "",
        "began": row.began_at, "ended": row.ended_at, "id": row.id,
    }  # fmt: skip
    return from_json(told, Tuning, exact=False)


def trial_row(tuning_id: int, one: Trial) -> TrialRow:
    """As the state keeps it."""
    return TrialRow(
        tuning_id=tuning_id,
        key=one.key,
        position=one.position,
        phase=one.phase,
        verdict=one.verdict,
        tree=one.tree or None,
        detail=_json(one, _IN_TRIAL),
    )


def trial_of(row: TrialRow) -> Trial:
    """From the state. Raises `ValueError` for a row that another program wrote."""
    told = {
        **row.detail, "key": row.key, "position": row.position, "phase": row.phase,
        "verdict": row.verdict, "tree": row.tree or "",
    }  # fmt: skip
    return from_json(told, Trial, exact=False)


def cell_of(row: TuningRow) -> str:
    """The id of the baseline's cell; empty for a row that another program wrote."""
    cell = row.detail.get("cell")
    return str(cell.get("id", "")) if isinstance(cell, dict) else ""


def session_row(tuning_id: int, trial: str, kind: SessionKind, one: Finished) -> SessionRow:
    """As the state keeps it; `detail` has the medians of the arms in milliseconds."""
    medians = {key: outcome.session().p50 for key, outcome in one.outcomes.items()}
    return SessionRow(
        tuning_id=tuning_id,
        trial=trial,
        kind=kind,
        component=one.component,
        number=one.number,
        detail={"order": one.order, "p50": medians},
        raw={key: outcome.to_json() for key, outcome in one.outcomes.items()},
    )


def finished_of(rows: Sequence[SessionRow]) -> list[Finished]:
    """Sessions that were read with their times. Raises `ValueError` and the like for others."""
    found = []
    for row in rows:
        outcomes = {key: Outcome.from_json(told) for key, told in dict(row.raw or {}).items()}
        found.append(Finished(row.component, row.number, str(row.detail["order"]), outcomes))
    return found


_IN_ROW = ("name", "model", "target", "status", "message", "began", "ended", "id")
_IN_TRIAL = ("key", "position", "phase", "verdict", "tree")


def _json(one: object, elsewhere: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in to_json(one).items() if name not in elsewhere}


def planned(one: Tuning, position: int) -> TuningRow:
    """A new tuning, at its place among those of its name."""
    return replace(tuning_row(one), position=position)


@dataclass(slots=True)
class Kept:
    """A tuning whose changes are written at once, so that a kill loses a session at most."""

    state: State
    tuning: Tuning
    trials: dict[str, Trial] = field(default_factory=dict)
    held: Lease | None = None
    """On a fleet: the lease without which nothing can be written."""

    @classmethod
    def read(cls, state: State, row: TuningRow, held: Lease | None = None) -> Kept:
        """As far as it has come. Raises `ValueError` for a row that another program wrote."""
        trials = [trial_of(one) for one in state.trials(row.id)]
        return cls(state, tuning_of(row), {one.key: one for one in trials}, held)

    def begin_anew(self, why: str) -> None:
        """Drop all that was measured, and what was planned by it, because of this.

        What was built stays in the store and in the feed.
        """
        dropped = self.state.forget_trials(self.tuning.id, self.held)
        self.trials.clear()
        note = f"measured again: {why} ({counted(dropped, 'session')} dropped)"
        self.change(
            machine=None, runtime=None, plan=None, combinations=None, baseline_ms=None,
            insight={}, explained={}, champion="", notes=(*self.tuning.notes, note),
        )  # fmt: skip

    def change(self, **values: Any) -> Tuning:
        """Change the tuning."""
        self.tuning = replace(self.tuning, **values)
        self.state.keep_tuning(tuning_row(self.tuning), self.held)
        return self.tuning

    def put(self, trial: Trial) -> Trial:
        """Keep a trial as it is now."""
        self.state.keep_trial(trial_row(self.tuning.id, trial), self.held)
        self.trials[trial.key] = trial
        return trial

    def sessions(self, trial: str, kind: SessionKind, artifacts: str) -> list[Finished]:
        """The finished sessions of a trial that compared these artifacts."""
        rows = self.state.sessions(self.tuning.id, trial, raw=True)
        same = [one for one in rows if one.detail.get("artifacts") == artifacts]
        with reading(f"the sessions of the trial {trial}"):
            return finished_of([one for one in same if one.kind is kind])

    def add(self, trial: str, kind: SessionKind, artifacts: str, one: Finished) -> None:
        """Keep a session."""
        row = session_row(self.tuning.id, trial, kind, one)
        detail = {**row.detail, "artifacts": artifacts}
        self.state.keep_session(replace(row, detail=detail), self.held)
