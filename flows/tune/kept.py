"""One tuning in the state: its facts, and every step as soon as it is done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from flows.cli.quantity import counted
from flows.tune.record import (
    Trial,
    Tuning,
    finished_of,
    session_row,
    trial_of,
    trial_row,
    tuning_of,
    tuning_row,
)
from matrix.trials import SessionKind
from state.records import Lease
from state.state import State
from state.tunings import TuningRow
from workers.measure.comparison import Finished


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
        return finished_of(
            [one for one in rows if one.kind is kind and one.detail.get("artifacts") == artifacts]
        )

    def add(self, trial: str, kind: SessionKind, artifacts: str, one: Finished) -> None:
        """Keep a session."""
        row = session_row(self.tuning.id, trial, kind, one)
        detail = {**row.detail, "artifacts": artifacts}
        self.state.keep_session(replace(row, detail=detail), self.held)
