"""What the state has of the cells of a sweep, read once for a report or a comparison; the sweeps of
the same kind before it, and since which of them a cell fails."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from flows.plan.recorded import PlannedCells
from matrix.status import Status
from state.reading import StateReader
from state.records import Measurement, Outcome, StageRun, SweepInfo


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


def kind_of(info: SweepInfo) -> tuple[object, ...]:
    """What sweeps have in common that are compared: feed, catalog and selection."""
    selected = json.dumps(info.selection, sort_keys=True, default=list)
    return (info.feed, info.publish, info.settings.get("catalog"), selected)


def earlier_sweeps(state: StateReader, info: SweepInfo) -> list[SweepInfo]:
    """The sweeps before this one with the same catalog, selection and feed, the newest first."""
    earlier = [
        one
        for one in state.sweeps()
        if one.id != info.id
        and one.exit_code is not None
        and one.created_at < info.created_at
        and kind_of(one) == kind_of(info)
    ]
    return sorted(earlier, key=lambda one: -one.created_at)


def failing_since(
    state: StateReader, earlier: Iterable[SweepInfo], outcomes: Iterable[Outcome]
) -> dict[str, str]:
    """Of the cells that fail and failed in the last sweep that came to an end with them, the stamp
    of the first sweep of those that they have failed in since."""
    found: dict[str, str] = {}
    failing = {one.cell for one in outcomes if one.status.failed}
    for sweep in earlier:
        if not failing:
            break
        statuses = state.statuses(sweep.id)
        for cell in failing & statuses.keys():
            if statuses[cell].failed:
                found[cell] = sweep.stamp
            elif statuses[cell].done and statuses[cell] is not Status.SKIPPED:
                failing.discard(cell)
    return found
