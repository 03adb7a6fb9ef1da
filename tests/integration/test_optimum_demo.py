"""The demo catalog, built for all targets by the real engine, loads, runs and agrees."""

from __future__ import annotations

import pytest

from matrix.model import Plan
from matrix.policy import quantized
from tests.engines.hosted import SharedHost
from tests.engines.optimum import builder, compare, export_of, inputs_of, plan_catalog
from workers.build.built import Built

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

Parity = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def swept(
    tmp_path_factory: pytest.TempPathFactory, optimum: SharedHost
) -> tuple[Plan, dict[str, Built], Parity]:
    root = tmp_path_factory.mktemp("demo")
    plan = plan_catalog("demo", root)
    found: dict[str, Built] = {}
    parity: Parity = {}
    with builder(root, optimum) as made:
        for planned in plan.models:
            export = export_of(made, plan, planned.cells[0], root / "export" / planned.model.id)
            for cell in planned.cells:
                built = found[cell.id] = made.build(cell)
                own = root / "seen" / cell.version
                inputs = inputs_of(built, own / "in")
                parity[cell.id] = compare(export, built.move_to(own / "package"), inputs)
    return plan, found, parity


def test_every_cell_agrees_with_its_export(swept: tuple[Plan, dict[str, Built], Parity]) -> None:
    plan, _, parity = swept
    floors = {"fp32": 0.9999, "w8a16": 0.95}
    for cell in plan.cells():
        assert parity[cell.id], cell.id
        assert min(parity[cell.id].values()) >= floors[cell.policy.precision], cell.id


def test_equal_parameters_share_their_runs(swept: tuple[Plan, dict[str, Built], Parity]) -> None:
    plan, found, _ = swept
    for planned in plan.models:
        runs = [run for cell in planned.cells for run in found[cell.id].stages if not run.reused]
        keys = [run.key for run in runs]
        assert len(keys) == len(set(keys))
        # Exported beforehand, for its package; every cell then reuses that one run.
        assert not [run for run in runs if run.stage == "export"]
        assert len([run for run in runs if run.stage == "inputs"]) == 1
        # Basic, static and extended fp32 are three.
        components = len({run.component for run in runs if run.component}) or 1
        assert len([run for run in runs if run.stage == "optimize"]) == 3 * components


def test_targets_whose_rewrites_change_the_same_share_the_quantized_graph(
    swept: tuple[Plan, dict[str, Built], Parity],
) -> None:
    plan, found, _ = swept
    counts = set()
    for planned in plan.models:
        built = [found[cell.id] for cell in planned.cells]
        needed = {
            (one["component"], *one["facts"]["rewrites"])
            for package in built
            for one in package.manifest["stages"]
            if one["stage"] == "rewrites"
        }
        runs = [run for package in built for run in package.stages if not run.reused]
        quantized = [run for run in runs if run.stage == "quantize"]
        assert len(quantized) == len(needed)
        counts.add(len(quantized) / len({run.component for run in quantized}))
    assert counts == {1, 2}


def test_quantized_cells_hold_the_types_they_promise(
    swept: tuple[Plan, dict[str, Built], Parity],
) -> None:
    plan, found, _ = swept
    for cell in plan.cells():
        stages = {run.stage for run in found[cell.id].stages}
        assert ("quantize" in stages) == quantized(cell.policy.precision), cell.id


def test_composites_have_their_components(swept: tuple[Plan, dict[str, Built], Parity]) -> None:
    _, found, _ = swept
    names = {
        key: {file.entry.path for file in built.files}
        for key, built in found.items()
        if key.endswith("@qnn_npu")
    }
    t5 = names["demo/t5-tiny:text2text-generation@qnn_npu"]
    clip = names["demo/clip-tiny:zero-shot-image-classification@qnn_npu"]
    bert = names["demo/bert-tiny:text-classification@qnn_npu"]
    assert {"encoder/model.onnx", "decoder/model.onnx", "config.json", "composition.json"} <= t5
    assert {"text/model.onnx", "vision/model.onnx", "config.json", "composition.json"} <= clip
    assert {"model.onnx", "config.json"} <= bert
    assert "composition.json" not in bert
    assert not [path for every in names.values() for path in every if ".scratch" in path]
