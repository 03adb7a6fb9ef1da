from __future__ import annotations

from dataclasses import replace

from flows.plan.recorded import PlannedCells, note_plan
from matrix.model import Source, SourceKind
from state.records import Kind
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


def test_what_was_planned_is_known_without_the_catalog(harness: SweepHarness) -> None:
    model = small_model()
    entry = replace(
        model.model,
        priority="P0",
        group="vision",
        source=Source(SourceKind.HUB, "tiny/model", revision="abc123"),
    )
    plan = make_plan(replace(model, model=entry))
    harness.sweep(plan)
    assert harness.begun is not None
    known = PlannedCells.of(harness.state, harness.begun.info.id)
    told = known.model(model.name)
    assert told is not None
    assert (told.id, told.task, told.priority, told.group) == (
        "tiny/model",
        "fill-mask",
        "P0",
        "vision",
    )
    assert known.source(model.name) == {"kind": "hub", "ref": "tiny/model", "revision": "abc123"}
    for cell in plan.cells():
        assert known.policy(cell.id)["precision"] == cell.policy.precision
        assert known.policy(cell.id)["opset"] == cell.policy.opset


def test_the_last_plan_holds_and_keeps_what_it_does_not_name(harness: SweepHarness) -> None:
    model = small_model()
    harness.sweep(make_plan(model))
    assert harness.begun is not None
    sweep_id = harness.begun.info.id
    last = model.cells[-1]
    changed = replace(last, policy=replace(last.policy, opset=21))
    note_plan(harness.state, sweep_id, make_plan(replace(model, cells=(changed,))))
    known = PlannedCells.of(harness.state, sweep_id)
    assert known.policy(last.id)["opset"] == 21
    assert known.policy(model.cells[0].id)["opset"] == 17


def test_a_sweep_of_an_older_modelmill_has_no_plan_and_that_is_fine(harness: SweepHarness) -> None:
    harness.sweep(make_plan(small_model()))
    assert harness.begun is not None
    harness.state.note(harness.begun.info.id, Kind.NOTICE, {"evicted": ["x"], "freed": 1})
    unknown = PlannedCells([])
    assert unknown.model("a/b:task") is None
    assert unknown.source("a/b:task") == {}
    assert unknown.policy("a/b:task@qnn_npu") == {}
