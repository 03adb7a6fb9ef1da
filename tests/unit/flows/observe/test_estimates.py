"""Estimates from history: distinct work counted once, unknown models from their like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.plan.estimates import (
    FAR,
    NEAREST,
    Estimates,
    by_size,
    estimate,
    makespan,
    source_size,
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
    assert cost.seconds == 15
    assert cost.disk == 300
    assert cost.memory == 5000
    assert found.cells == {first: 13, second: 0, third: 2}
    assert found.unknown == 0


def test_only_the_cells_that_are_planned_count() -> None:
    model = small_model("a/b")
    kept = replace(model, cells=model.cells[:1])
    found = guess(Past(*(unit(cell.id, "export", 4) for cell in model.cells)), kept)
    assert found.models[model.name].seconds == 4


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
    assert found.models[model.name].seconds == 12
    assert found.cells[model.cells[2].id] == 4


def test_the_export_is_not_counted_again_for_a_target_that_is_new() -> None:
    model = small_model("a/b", cells=8)
    first = model.cells[0].id
    found = guess(Past(unit(first, "export", 23), unit(first, "optimize", 0.5)), model)
    assert found.models[model.name].seconds == 23 + 8 * 0.5


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
    assert cost.seconds == 10 + 2 * 3
    assert cost.disk == 300
    assert cost.memory == 7000
    assert cost.basis == "its other targets"
    assert list(found.cells.values()) == [13, 3]


def of_size(model: PlannedModel, folder: Path, size: int) -> PlannedModel:
    """The model with weights of this size in a folder."""
    (folder / "model.safetensors").write_bytes(b"x" * size)
    return replace(model, model=replace(model.model, source=Source(SourceKind.FOLDER, str(folder))))


def test_an_unknown_model_is_like_those_of_its_type_then_task_then_all(tmp_path: Path) -> None:
    def typed(name: str, kind: str) -> PlannedModel:
        model = small_model(name, cells=1)
        return replace(model, model=replace(model.model, model_type=kind))

    past = Past(export_of("a/bert", 10), export_of("a/gpt", 50))
    bert, gpt = typed("a/bert", "bert"), typed("a/gpt", "gpt")
    new = of_size(typed("a/new", "bert"), tmp_path, 100)
    found = guess(past, bert, gpt, new)
    assert found.models[new.name].seconds == 10
    assert found.models[new.name].basis == "bert models for fill-mask"
    stranger = of_size(typed("a/odd", "rare"), tmp_path, 100)
    assert guess(past, bert, gpt, stranger).models[stranger.name].basis == "models for fill-mask"
    other = replace(stranger, model=replace(stranger.model, task="asr"))
    assert guess(past, bert, other).models[other.name].basis == "all models"


def test_a_model_of_unknown_or_quite_another_size_is_unknown(tmp_path: Path) -> None:
    past, new = Past(export_of("a/old", 10, 100)), small_model("a/new", cells=1)
    assert guess(past, new).unknown == 1
    assert guess(past, of_size(new, tmp_path, 100 * FAR)).unknown == 0
    found = guess(past, of_size(new, tmp_path, 100 * FAR + 1))
    assert (found.models, found.unknown) == ({}, 1)


def test_a_figure_has_a_fixed_part_and_a_part_by_size(tmp_path: Path) -> None:
    assert by_size(4000, [(1000, 15.0), (2000, 20.0)]) == pytest.approx(30)
    assert by_size(4000, [(1000, 20.0), (2000, 10.0)]) == pytest.approx(15), "it never falls"
    assert by_size(4000, [(1000, 10.0), (1001, 12.0)]) == pytest.approx(11), "too near to tell"
    assert by_size(4000, [(1000, 1.0), (2000, 90.0)]) < 4000 * 90 / 2000
    past = Past(*(export_of(f"n/{size}", 10 + size / 200, size) for size in (500, 1000, 2000)))
    found = guess(past, of_size(small_model("a/new", cells=1), tmp_path, 4000))
    assert found.models["a/new:fill-mask"].seconds == pytest.approx(30)


def test_the_nearest_sizes_decide(tmp_path: Path) -> None:
    near = [export_of(f"n/{number}", 20, 2000) for number in range(NEAREST)]
    far = [export_of(f"f/{number}", 1, 500) for number in range(50)]
    local = of_size(small_model("a/new", cells=1), tmp_path, 2100)
    assert guess(Past(*near, *far), local).models[local.name].seconds == pytest.approx(20)
    assert source_size(local.model) == 2100
    gone = replace(local.model, source=Source(SourceKind.FOLDER, str(tmp_path / "gone")))
    assert source_size(gone) == 0


def test_without_any_history_nothing_is_claimed() -> None:
    model = plan_model()
    found = guess(Past(), model)
    assert (found.models, found.cells, found.unknown) == ({}, {}, 1)
    assert found.seconds(model.name) == 0.0
    assert found.wall(2) == 0


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
    assert {cell.id for cell in plan.cells()} == set(found.cells)
    assert found.unknown == 1
    assert [name for name, seconds in model_seconds(again, found).items() if not seconds] == [
        "c/new:fill-mask"
    ]
    units = harness.state.unit_costs()
    assert {one.stage for one in units} >= {"export", "optimize"}
    runs = {one.key for one in units if one.model == "a/one:fill-mask"}
    assert harness.begun is not None
    recorded = harness.state.stage_runs(harness.begun.info.id)
    assert runs == {one.key for one in recorded if one.model == "a/one:fill-mask"}
