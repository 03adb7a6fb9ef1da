"""Estimates from history: distinct work counted once, unknown models from their like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.observe.estimates import (
    COMMON,
    NEAREST,
    Estimates,
    Range,
    estimate,
    makespan,
    source_size,
    total,
)
from flows.sweep.lifecycle import model_seconds
from matrix.model import PlannedModel, Source, SourceKind
from state.records import StageRun
from tests.plans.cells import plan_model
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model


class Past:
    """A state that remembers what it is told."""

    def __init__(self, *units: StageRun, **overheads: float) -> None:
        self._units, self._overheads = list(units), overheads

    def unit_costs(self) -> list[StageRun]:
        return self._units

    def overheads(self) -> dict[str, float]:
        return self._overheads


def unit(cell: str, stage: str, seconds: float, *, key: str = "", **more: Any) -> StageRun:
    values = {"bytes": 100, "peak_memory": 1000, **more}
    model, _at, target = cell.partition("@")
    key = key or f"{cell} {stage}"
    return StageRun(cell, target, stage, key, model=model, seconds=seconds, **values)


def guess(past: Past, *models: PlannedModel) -> Estimates:
    return estimate(make_plan(*models), past)  # type: ignore[arg-type]


def export_of(name: str, seconds: float, size: int = 100) -> StageRun:
    return unit(f"{name}:fill-mask@vitisai_npu", "export", seconds, bytes=size)


def test_work_that_cells_share_is_counted_once() -> None:
    model = small_model("a/b")
    first, second, third = (cell.id for cell in model.cells)
    found = guess(
        Past(
            unit(first, "export", 10, key="x"),
            unit(second, "export", 10, key="x"),
            unit(third, "export", 10, key="x"),
            unit(first, "quantize", 3),
            unit(third, "quantize", 2, peak_memory=5000),
        ),
        model,
    )
    cost = found.models[model.name]
    assert cost.seconds.likely == 15
    assert cost.disk.likely == 300
    assert cost.memory.likely == 5000
    assert cost.seconds.low < 15 < cost.seconds.high
    assert found.cells == {first: 13, second: 0, third: 2}
    assert found.unknown == 0


def test_only_the_cells_that_are_planned_count() -> None:
    model = small_model("a/b")
    kept = replace(model, cells=model.cells[:1])
    found = guess(Past(*(unit(cell.id, "export", 4) for cell in model.cells)), kept)
    assert found.models[model.name].seconds.likely == 4


def test_verification_is_counted_with_each_cell() -> None:
    model = small_model("a/b", cells=2)
    first, second = (cell.id for cell in model.cells)
    past = Past(unit(first, "export", 4), unit(second, "export", 0, key=f"{first} export"))
    past._overheads = {first: 1.0, second: 3.0}
    assert guess(past, model).cells == {first: 5.0, second: 3.0}


def test_a_target_that_is_new_costs_what_the_others_do() -> None:
    model = small_model("a/b", cells=3)
    known = [unit(cell.id, "optimize", 4) for cell in model.cells[:2]]
    found = guess(Past(*known), model)
    assert found.models[model.name].seconds.likely == 12
    assert found.cells[model.cells[2].id] == 4


def test_a_model_that_was_only_built_for_other_targets_is_no_free_one() -> None:
    model = small_model("a/b", cells=4)
    first, second = (cell.id for cell in model.cells[:2])
    past = Past(
        unit(first, "export", 10, key="e"),
        unit(second, "export", 10, key="e"),
        unit(first, "optimize", 2),
        unit(second, "optimize", 4, peak_memory=7000),
    )
    others = replace(model, cells=model.cells[2:])
    found = guess(past, others)
    cost = found.models[model.name]
    assert cost.seconds.likely == 10 + 2 * 3
    assert cost.disk.likely == 300
    assert cost.memory.likely == 7000
    assert cost.basis == "its other targets"
    assert list(found.cells.values()) == [13, 3]


def test_an_unknown_model_is_like_those_of_its_type_then_task_then_all() -> None:
    def typed(name: str, kind: str) -> PlannedModel:
        model = small_model(name, cells=1)
        return replace(model, model=replace(model.model, model_type=kind))

    past = Past(export_of("a/bert", 10), export_of("a/gpt", 50))
    bert, gpt, new = typed("a/bert", "bert"), typed("a/gpt", "gpt"), typed("a/new", "bert")
    found = guess(past, bert, gpt, new)
    assert found.models[new.name].seconds.likely == 10
    assert found.models[new.name].basis == "bert models for fill-mask"
    stranger = typed("a/odd", "rare")
    assert guess(past, bert, gpt, stranger).models[stranger.name].basis == "models for fill-mask"
    other = replace(stranger, model=replace(stranger.model, task="asr"))
    assert guess(past, bert, other).models[other.name].basis == "all models"
    spread = found.models[new.name].seconds
    own = found.models[bert.name].seconds
    assert spread.high - spread.low > own.high - own.low


def test_size_decides_where_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x" * 4000)
    model = small_model("a/new", cells=1)
    source = Source(SourceKind.FOLDER, str(tmp_path))
    local = replace(model, model=replace(model.model, source=source))
    near = [export_of(f"n/{number}", 20, 2000) for number in range(NEAREST)]
    far = [export_of(f"f/{number}", 1, 2) for number in range(50)]
    found = guess(Past(*near, *far), local)
    assert found.models[local.name].seconds.likely == pytest.approx(40)
    assert source_size(local.model) == 4000
    gone = replace(local.model, source=Source(SourceKind.FOLDER, str(tmp_path / "gone")))
    assert source_size(gone) == 0


def test_without_any_history_nothing_is_claimed() -> None:
    model = plan_model()
    found = guess(Past(), model)
    assert (found.models, found.cells, found.unknown) == ({}, {}, 1)
    assert found.seconds(model.name) == 0.0
    assert found.wall(2) == Range()


def test_deviations_make_up_for_each_other() -> None:
    parts = [Range.around(10.0) for _ in range(100)]
    summed = total(parts)
    assert summed.likely == pytest.approx(1000)
    assert summed.high - summed.likely == pytest.approx(50)
    assert total([]) == Range()


def test_a_sweep_may_be_off_as_a_whole_however_many_parts_it_has() -> None:
    names = [f"a/{number}" for number in range(64)]
    models = [small_model(name, cells=1) for name in names]
    past = Past(*(export_of(name, 10) for name in names))
    found = guess(past, *models).wall(2)
    assert found.likely == pytest.approx(320)
    assert found.low < 320 / COMMON
    assert found.high > 320 * COMMON
    assert found.high < 2 * 320


def test_the_longest_first_fills_the_slots() -> None:
    assert makespan([1, 1, 1, 1, 4], 2) == 4
    assert makespan([], 3) == 0
    assert makespan([5, 4], 0) == 9


def test_a_sweep_teaches_the_next_one(harness: SweepHarness) -> None:
    plan = make_plan(small_model("a/one"), small_model("b/two"))
    assert [*model_seconds(plan, estimate(plan, harness.state)).values()] == [0.0, 0.0]
    harness.sweep(plan)
    again = make_plan(small_model("a/one"), small_model("b/two"), small_model("c/new"))
    found = estimate(again, harness.state)
    assert {cell.id for cell in again.cells()} == set(found.cells)
    assert found.models["c/new:fill-mask"].basis != "its own history"
    assert all(seconds > 0 for seconds in model_seconds(again, found).values())
    units = harness.state.unit_costs()
    assert {one.stage for one in units} >= {"export", "optimize"}
    runs = {one.key for one in units if one.model == "a/one:fill-mask"}
    assert harness.begun is not None
    recorded = harness.state.stage_runs(harness.begun.info.id)
    assert runs == {one.key for one in recorded if one.model == "a/one:fill-mask"}
