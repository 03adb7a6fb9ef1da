"""How good estimates are, and what longest-first is worth.

    python -m tests.bench.estimates

One catalog is swept twice, the store emptied in between, so that the second sweep really does all
of it again. Before it nothing is known and models go in catalog order, the largest last; then they
go by what the first sweep has taught. Ratios come from one run on one machine.
"""

from __future__ import annotations

import random
import tempfile
from datetime import date
from pathlib import Path
from statistics import median

from flows.plan.estimates import Estimates, estimate, makespan
from flows.plan.planning import plan_of
from flows.settings.resolution import resolve
from matrix.status import Status
from tests.sweeps.command import Project, model

SLOTS = 2
TARGETS = "qnn_npu, mlas_cpu"
MODELS = 14
LONGEST = 9.0
"""Seconds of the last model of the catalog; the others take a fraction of it."""


def main() -> None:
    """Sweep, forget, estimate, sweep; print what was foretold and what came."""
    with tempfile.TemporaryDirectory(prefix="modelmill-bench-") as folder:
        project = Project(Path(folder), {"MODELMILL_JOBS": str(SLOTS), "MODELMILL_ENGINE": "fake"})
        catalog = project.catalog(*_models())
        sweep = ("sweep", catalog, "--target", TARGETS, "--stamp")
        project.ok(*sweep, "first")
        project.ok("store", "clear")
        foretold = _foretold(project, catalog)
        project.ok(*sweep, "second")
        _print(foretold, project)


def _models() -> list[str]:
    dice = random.Random(7)
    seconds = [LONGEST * dice.uniform(0.05, 0.3) for _ in range(MODELS - 1)] + [LONGEST]
    return [model(f"tiny/m{number:02}", act=_acts(whole)) for number, whole in enumerate(seconds)]


def _acts(seconds: float) -> dict[str, str]:
    return {
        stage: f"sleep:{seconds * share:.3f}"
        for stage, share in {"export": 0.5, "optimize": 0.2, "quantize": 0.3}.items()
    }


def _foretold(project: Project, catalog: str) -> Estimates:
    flags = {"target": tuple(TARGETS.split(",")), "stamp": "second", "engine": "fake"}
    plan = plan_of(resolve(flags, {}, project.folder), catalog, date(2026, 6, 9))
    with project.state() as state:
        return estimate(plan, state)


def _actual(project: Project, stamp: str) -> tuple[dict[str, float], float]:
    """Seconds that each model kept a slot, and from the first cell's begin to the last's end."""
    taken: dict[str, float] = {}
    began: dict[str, float] = {}
    ends: list[float] = []
    with project.state() as state:
        info = state.find_sweep(stamp)
        assert info
        for event in state.events(info.id):
            if event.cell is None or event.status is None:
                continue
            if event.status is Status.BUILDING:
                began[event.cell] = event.at
            elif event.status is Status.VERIFIED:
                name = event.cell.partition("@")[0]
                taken[name] = taken.get(name, 0.0) + event.at - began[event.cell]
                ends.append(event.at)
    return taken, max(ends) - min(began.values())


def _print(foretold: Estimates, project: Project) -> None:
    taken, wall = _actual(project, "second")
    _before, wall_before = _actual(project, "first")
    errors = [abs(foretold.seconds(name) - seconds) / seconds for name, seconds in taken.items()]
    whole = foretold.wall(SLOTS)
    in_order = _in_order([taken[name] for name in sorted(taken)], SLOTS)
    print(f"models                     {len(taken)} on {SLOTS} slots, longest last in the catalog")
    print(f"median error per model     {median(errors):.1%}  (wanted: under 25%)")
    print(f"worst error per model      {max(errors):.1%}")
    print(f"sweep: actual / foretold   {wall / whole:.2f}")
    print(f"catalog order / longest first, both swept      {wall_before / wall:.2f}")
    print("the same from one sweep's times                ", end="")
    print(f"{in_order / makespan(taken.values(), SLOTS):.2f}")


def _in_order(seconds: list[float], slots: int) -> float:
    busy = [0.0] * slots
    for one in seconds:
        busy[busy.index(min(busy))] += one
    return max(busy)


if __name__ == "__main__":
    main()
