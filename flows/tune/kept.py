"""One tuning in the state: what it knows, and every step of it as soon as it is made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

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
from state.state import State
from state.tunings import TuningRow
from workers.measure.comparison import Finished


@dataclass(slots=True)
class Kept:
    """A tuning whose changes are written at once, so that a kill loses a session at most."""

    state: State
    tuning: Tuning
    trials: dict[str, Trial] = field(default_factory=dict)

    @classmethod
    def read(cls, state: State, row: TuningRow) -> Kept:
        """As far as it has come. Raises `ValueError` for a row that another program wrote."""
        trials = [trial_of(one) for one in state.trials(row.id)]
        return cls(state, tuning_of(row), {one.key: one for one in trials})

    def change(self, **values: Any) -> Tuning:
        """Change the tuning."""
        self.tuning = replace(self.tuning, **values)
        self.state.keep_tuning(tuning_row(self.tuning))
        return self.tuning

    def put(self, trial: Trial) -> Trial:
        """Keep a trial as it is now."""
        self.state.keep_trial(trial_row(self.tuning.id, trial))
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
        self.state.keep_session(replace(row, detail={**row.detail, "artifacts": artifacts}))
