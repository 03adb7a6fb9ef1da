"""What earlier versions left in states and packages can still be read (`recorded.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from feed.rules import STRICTEST
from flows.fleet.run import last_run
from flows.plan.recorded import FLEET, PlannedCells, recall
from flows.plan.work_left import from_record
from matrix.plan_json import plan_from_record, plan_to_record
from state.records import Kind
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from workers.attest.provenance import cell_of, recipe_of

CELL = "a/b:fill-mask@qnn_npu"


@pytest.fixture
def recorded() -> dict[str, Any]:
    text = Path(__file__).with_name("recorded.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_plan(recorded: dict[str, Any]) -> None:
    plan = plan_from_record(recorded["fleet"]["plan"], STRICTEST)
    cells = {cell.id: cell for cell in plan.cells()}
    assert len(cells) == 6
    assert (cells[CELL].version, cells[CELL].policy.precision) == (
        "0.0.0-20260609-qnn-npu-a-b-fill-mask",
        "w8a16",
    )
    assert cells["a/b:fill-mask@dml_gpu"].skip == "no GPU has the operator"
    assert plan_from_record(json.loads(json.dumps(plan_to_record(plan))), STRICTEST) == plan


def test_an_order_of_a_fleet(
    recorded: dict[str, Any], harness: SweepHarness, tmp_path: Path
) -> None:
    harness.sweep(make_plan(small_model()))
    assert harness.begun is not None
    sweep = harness.begun.info.id
    harness.state.note(sweep, Kind.STARTED, {"pid": 1, FLEET: recorded["fleet"]})
    run = last_run(harness.state, sweep, "20260609")
    assert run.newest[CELL].tree == "a" * 64
    settings = run.settings({}, tmp_path)
    assert (settings.target, settings.opset, settings.tries) == (("qnn_npu",), 17, 9)


def test_settings_of_a_sweep(recorded: dict[str, Any], harness: SweepHarness) -> None:
    settings, catalog = recall(harness.settings(), "20260609", recorded["settings"])
    assert catalog == "demo"
    assert (settings.target, settings.opset) == (("qnn_npu",), 17)


def test_plans_and_estimates_for_a_report(recorded: dict[str, Any]) -> None:
    known = PlannedCells([plan_from_record(recorded["fleet"]["plan"], STRICTEST)])
    assert known.policy(CELL)["precision"] == "w8a16"
    model = known.model("a/b:fill-mask")
    assert model is not None
    assert (model.id, model.task, model.priority) == ("a/b", "fill-mask", "P2")
    assert known.source(model.name) == {"kind": "hub", "ref": "a/b", "revision": "main"}
    estimates = from_record(recorded["estimates"])
    assert estimates.models["a/b:fill-mask"].seconds == 10.123
    assert (estimates.cells[CELL], estimates.unknown) == (5.432, 2)


def test_the_recipe_of_a_package(recorded: dict[str, Any]) -> None:
    cell = cell_of(recorded["recipe"], timeout=9.0)
    assert (cell.id, cell.timeout, cell.model.pickle) == (CELL, 9.0, True)
    assert cell.policy.shapes == {"batch": 2}
    again = recipe_of(cell, allow=recorded["recipe"]["allow"])
    assert cell_of(json.loads(json.dumps(again)), timeout=9.0) == cell
