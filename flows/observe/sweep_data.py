"""What the state has of the cells of a sweep, read once for a report or a comparison."""

from __future__ import annotations

from collections import defaultdict

from flows.plan.recorded import PlannedCells
from state.reading import StateReader
from state.records import Measurement, StageRun, SweepInfo


class SweepData:
    """A sweep with its outcomes, stage runs, plans and measurements."""

    def __init__(self, state: StateReader, info: SweepInfo) -> None:
        self.info = info
        self.outcomes = {one.cell: one for one in state.outcomes(info.id)}
        self.runs: defaultdict[str, list[StageRun]] = defaultdict(list)
        """By the cells that they were made for."""
        for run in state.stage_runs(info.id):
            self.runs[run.cell].append(run)
        self.parts = state.key_parts(info.id)
        """What each stage key was made of."""
        self.seconds = state.real_seconds(info.id)
        """What each stage took when it really ran, by key."""
        self.planned = PlannedCells.of(state, info.id)
        self.measurements: defaultdict[str, list[Measurement]] = defaultdict(list)
        """Benchmarks, comparisons and traces by the digest of their package, the oldest first."""
        for one in state.measurements({one.tree for one in self.outcomes.values() if one.tree}):
            self.measurements[one.tree].append(one)
