"""What earlier versions left in states and packages can still be read (`recorded.json`)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from feed.rules import STRICTEST
from flows.fleet.run import last_run
from flows.plan.estimates import from_record
from flows.plan.recorded import PlannedCells, recall, recorded_estimates, recorded_plans
from matrix.plan_json import plan_from_record, plan_to_record
from state.errors import StateError
from state.records import Kind
from state.state import open_state
from tests.states import FIRST_SCHEMA
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


def test_plans_of_local_runs_and_of_a_fleet(recorded: dict[str, Any], tmp_path: Path) -> None:
    """They stood in the events, one for each run."""
    path = tmp_path / "state.db"
    order, plan, estimates = recorded["fleet"], recorded["fleet"]["plan"], recorded["estimates"]
    other = {**plan, "plan": {**plan["plan"], "notices": ["a notice"]}}
    events = (
        (Kind.NOTICE, {"plan": plan, "estimate": estimates}),
        (Kind.NOTICE, {"plan": other}),
        (Kind.NOTICE, {"unlisted": "the plan of it"}),
        (Kind.STARTED, {"pid": 1, "fleet": order}),
    )
    with closing(sqlite3.connect(path)) as older:
        older.executescript(FIRST_SCHEMA.read_text("utf-8"))
        older.execute("INSERT INTO sweep VALUES (1, '20260609', 'f', 1, '{}', '{}', 1, 1, 2, 0)")
        for kind, data in events:
            given = (str(kind), json.dumps(data))
            older.execute("INSERT INTO event (at, sweep_id, kind, data) VALUES (1, 1, ?, ?)", given)
        older.commit()
    with open_state(path) as state:
        first, last = recorded_plans(state, 1)
        assert (first.notices, last) == (("a notice",), plan_from_record(plan, STRICTEST))
        known = recorded_estimates(state, 1)
        assert known is not None
        assert known.unknown == 2
        run = last_run(state, 1, "20260609")
        assert max(len(str(event.data)) for event in state.events(1)) < 2000
    assert run.plan == last
    assert run.newest[CELL].tree == "a" * 64
    settings = run.settings({}, tmp_path)
    assert (settings.target, settings.opset, settings.tries) == (("qnn_npu",), 17, 9)


def test_the_same_plan_is_kept_once(harness: SweepHarness) -> None:
    plan, other = make_plan(small_model()), make_plan(small_model(cells=1))
    for each in (plan, other, plan):
        harness.sweep(each)
    assert harness.begun is not None
    assert list(recorded_plans(harness.state, harness.begun.info.id)) == [other, plan]


@pytest.mark.parametrize("wrong", ["x'00'", "'text'", "x'789c8b8e0500011500b9'"])
def test_a_damaged_plan_is_an_error(harness: SweepHarness, wrong: str) -> None:
    harness.sweep(make_plan(small_model()))
    assert harness.begun is not None
    with harness.state.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE plan SET plan = {wrong}")
    with pytest.raises(StateError, match="a plan of sweep"):
        list(recorded_plans(harness.state, harness.begun.info.id))


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
