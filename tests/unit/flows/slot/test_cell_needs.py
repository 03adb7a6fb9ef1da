"""Cells that need a machine of a kind, with made-up words: the others are built anywhere."""

from __future__ import annotations

from dataclasses import replace

from matrix.errors import Exit
from matrix.model import Plan
from matrix.needs import Words
from matrix.status import Status
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

PLAIN: Words = frozenset({"engine:fake"})
BOARD = PLAIN | {"compile:htp73"}


def mixed(*names: str) -> Plan:
    """Of each model two portable cells and one that only a board compiles."""
    models = []
    for name in names:
        planned = small_model(name, cells=3)
        *portable, last = planned.cells
        compiled = replace(last, needs=("compile:htp73",))
        models.append(replace(planned, cells=(*portable, compiled)))
    return make_plan(*models)


def exported(harness: SweepHarness) -> int:
    """How often an export was really made."""
    assert harness.begun is not None
    runs = harness.state.stage_runs(harness.begun.info.id)
    return sum(run.stage == "export" and not run.reused for run in runs)


def test_portable_cells_are_built_anywhere_and_the_others_wait(harness: SweepHarness) -> None:
    plan = mixed("a/one", "b/two")
    summary = harness.sweep(plan, slots=2, offers=PLAIN)
    waiting = {cell for cell, status in harness.statuses().items() if status is Status.PLANNED}
    assert waiting == {cell.id for cell in plan.cells() if cell.needs}
    assert set(harness.statuses().values()) == {Status.PUBLISHED, Status.PLANNED}
    assert (summary.open, summary.exit_code()) == (2, Exit.INTERRUPTED)
    assert exported(harness) == 2


def test_a_machine_of_the_kind_builds_the_rest_from_the_same_export(harness: SweepHarness) -> None:
    plan = mixed("a/one")
    harness.sweep(plan, offers=PLAIN)
    assert harness.sweep(plan, offers=BOARD).exit_code() is Exit.OK
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    assert exported(harness) == 1
    assert harness.begun is not None
    leases = [one for one in harness.state.events(harness.begun.info.id) if one.kind == "leased"]
    assert [one.model for one in leases] == ["a/one:fill-mask"] * 2, "the portable cells once"


def test_one_machine_that_offers_everything_builds_everything(harness: SweepHarness) -> None:
    plan = mixed("a/one", "b/two")
    assert harness.sweep(plan, slots=2, offers=BOARD).exit_code() is Exit.OK
    assert set(harness.statuses().values()) == {Status.PUBLISHED}
    assert exported(harness) == 2
    assert harness.left_over() == []
