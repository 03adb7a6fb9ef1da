"""A recipe is an input: it shows in the keys, and its bytes are those of `winml build -c`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engines.hosted import SharedHost
from tests.engines.winml import (
    FLAGS,
    builder,
    cell,
    folder_entry,
    model_digests,
    model_folder,
    plan_of,
)
from tests.engines.winml_command import CommandLine
from workers.build.builder import Builder
from workers.build.built import Built
from workers.errors import BuildFailed

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]

NAME = "bert/qnn/npu/text-classification_w8a16"


@pytest.fixture(scope="module")
def generated(models: Path, winml: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `winml config` writes for the model and target: where an author begins."""
    file = tmp_path_factory.mktemp("recipe") / "config.json"
    ep, device, *precision = FLAGS["qnn_npu"]
    named = ("-m", str(model_folder("bert", models)), "-o", str(file))
    winml.run("config", *named, "--ep", ep, "--device", device, *precision, "--no-compile")
    return json.loads(file.read_text("utf-8"))


def authored(generated: Any, folder: Path, **quant: Any) -> dict[str, Any]:
    settings = {**generated["quant"], "model_id": str(folder), **quant}
    return {**generated, "auto": False, "optim": {"gelu_fusion": True}, "quant": settings}


def keys_of(built: Built) -> dict[str, str]:
    return {stage.stage: stage.key for stage in built.stages}


def test_a_recipe_is_an_input(
    generated: Any, models: Path, winml: CommandLine, host: SharedHost, tmp_path: Path
) -> None:
    folder = model_folder("bert", models)
    recipe = tmp_path / f"recipes/{NAME}_config.json"
    recipe.parent.mkdir(parents=True)
    entry = folder_entry("bert", folder)
    plain = plan_of({"bert": entry}, tmp_path)
    plan = plan_of({"bert": entry + '\nrecipes = "recipes"'}, tmp_path)
    with builder(tmp_path, host=host) as engine:
        without = engine.build(cell(plain, "qnn_npu"))
    built = {}
    for samples in (3, 5):
        config = authored(generated, folder, samples=samples)
        recipe.write_text(json.dumps(config), encoding="utf-8")
        out = tmp_path / f"reference-{samples}"
        expected = winml.build(folder, out, ["qnn_npu"], "-c", str(recipe))
        with builder(tmp_path, host=host) as engine:  # recipes are read once by each
            built[samples] = engine.build(cell(plan, "qnn_npu"))
        assert model_digests(built[samples]) == expected["qnn_npu"]
        facts = {one["stage"]: one["facts"] for one in built[samples].manifest["stages"]}
        assert facts["optimize"]["analysis"] is None
        assert facts["quantize"]["calibration"]["samples"] == samples

    keys = {samples: keys_of(one) for samples, one in built.items()}
    changed = {stage for stage in keys[3] if keys[3][stage] != keys[5][stage]}
    assert changed == {"quantize"}
    assert keys_of(without)["optimize"] != keys[3]["optimize"]
    assert len({str(model_digests(one)) for one in (without, built[3], built[5])}) == 3
    assert built[3].manifest["notices"] == [f"built with the recipe {NAME}"]


def test_a_target_without_a_recipe_is_built_as_ever(
    generated: Any, models: Path, engine: Builder, tmp_path: Path
) -> None:
    folder = model_folder("bert", models)
    recipe = tmp_path / f"recipes/{NAME}_config.json"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(json.dumps(authored(generated, folder)), encoding="utf-8")
    entry = folder_entry("bert", folder)
    plain = plan_of({"bert": entry}, tmp_path)
    plan = plan_of({"bert": entry + '\nrecipes = "recipes"'}, tmp_path)
    ours = engine.build(cell(plan, "ov_npu"))
    assert keys_of(ours) == keys_of(engine.build(cell(plain, "ov_npu")))
    assert ours.manifest["notices"] == []


def test_a_broken_recipe_costs_its_cell(models: Path, engine: Builder, tmp_path: Path) -> None:
    recipe = tmp_path / f"recipes/{NAME}_config.json"
    recipe.parent.mkdir(parents=True)
    recipe.write_text('{"optimise": {}}', encoding="utf-8")
    entry = folder_entry("bert", model_folder("bert", models))
    plan = plan_of({"bert": entry + '\nrecipes = "recipes"'}, tmp_path)
    with pytest.raises(BuildFailed, match="has an unknown section optimise") as caught:
        engine.build(cell(plan, "qnn_npu"))
    assert "\n" not in str(caught.value)
    assert engine.build(cell(plan, "mlas_cpu")).files
