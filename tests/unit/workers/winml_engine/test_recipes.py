"""Finding the recipe of a cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engines.winml_requests import make_request
from workers.engine import StageError
from workers.winml_engine import WinmlEngine, recipes

NPU = {"ep": "qnn", "device": "npu", "provider": "QNNExecutionProvider", "precision": "w8a16"}


def write(root: Path, path: str, **config: Any) -> None:
    file = root / "owner_model" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"loader": {"task": "fill-mask"}, "export": {}, **config}))


def find(root: Path, **more: Any) -> recipes.Recipe | None:
    return recipes.find(make_request(**{**NPU, **more}, recipes=str(root)))


def test_without_a_folder_there_is_none() -> None:
    assert recipes.find(make_request()) is None


def test_a_targets_own_folder_hides_the_older_place(tmp_path: Path) -> None:
    write(tmp_path, "fill-mask_w8a16_config.json", optim={"old": True})
    found = find(tmp_path)
    assert found is not None
    assert found.sections("optim") == {"": {"optim": {"old": True}}}
    write(tmp_path, "qnn/npu/fill-mask_w8a8_config.json")
    assert find(tmp_path) is None, "the target has a folder, and that has no such recipe"


def test_only_the_first_slash_of_an_id_is_replaced(tmp_path: Path) -> None:
    request = make_request(**NPU, recipes=str(tmp_path))
    deep = {**request.model, "id": "a/b/c"}
    file = tmp_path / "a_b/c/qnn/npu/fill-mask_w8a16_config.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert recipes.find(type(request)(deep, request.target, request.policy)) is not None


@pytest.mark.parametrize("middle", ["config_{}", "{}_config"])
def test_a_composite_has_a_file_for_each_component(tmp_path: Path, middle: str) -> None:
    for role in ("image-encoder", "text-encoder"):
        write(tmp_path, f"qnn/npu/fill-mask_w8a16_{middle.format(role)}.json", optim={role: True})
    found = find(tmp_path)
    assert found is not None
    assert found.sections("optim")["image-encoder"] == {"optim": {"image-encoder": True}}
    assert sorted(found.by_role) == ["image-encoder", "text-encoder"]


def test_a_mixture_of_both_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "qnn/npu/fill-mask_w8a16_config.json")
    write(tmp_path, "qnn/npu/fill-mask_w8a16_config_decoder.json")
    with pytest.raises(StageError, match="with and without a component"):
        find(tmp_path)


def test_another_task_or_precision_is_not_ours(tmp_path: Path) -> None:
    write(tmp_path, "qnn/npu/feature-extraction_w8a16_config.json")
    write(tmp_path, "qnn/npu/fill-mask_w8a8_config.json")
    write(tmp_path, "qnn/npu/fill-mask_int4_config.json")
    write(tmp_path, "qnn/npu/README.json")
    assert find(tmp_path) is None


def test_a_half_recipe_that_converts_nothing_ships_fp32(tmp_path: Path) -> None:
    cpu = {"ep": "cpu", "device": "cpu", "precision": "fp32"}
    write(tmp_path, "cpu/cpu/fill-mask_fp16_config.json", quant=None)
    assert find(tmp_path, **cpu) is not None
    write(tmp_path, "cpu/cpu/fill-mask_fp16_config.json", quant={"mode": "fp16"})
    assert find(tmp_path, **cpu) is None
    assert find(tmp_path, **{**cpu, "precision": "fp16"}) is not None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "cannot be read"),
        ("[]", "is not an object"),
        ('{"_status": "crashes"}', "marked as broken: crashes"),
        ('{"optimize": {}}', "unknown section optimize"),
    ],
)
def test_a_bad_recipe_is_one_line_that_names_it(tmp_path: Path, text: str, line: str) -> None:
    write(tmp_path, "qnn/npu/fill-mask_w8a16_config.json")
    (tmp_path / "owner_model/qnn/npu/fill-mask_w8a16_config.json").write_text(text)
    with pytest.raises(StageError, match=line) as caught:
        find(tmp_path)
    assert "fill-mask_w8a16_config.json" in str(caught.value)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no recipes folder"):
        find(tmp_path / "nowhere")


@pytest.mark.usefixtures("winml")
def test_each_section_is_a_parameter_of_the_stage_that_uses_it(tmp_path: Path) -> None:
    def keys(**config: Any) -> dict[str, Any]:
        write(tmp_path, "qnn/npu/fill-mask_w8a16_config.json", **config)
        plan = WinmlEngine().plan(make_request(**NPU, recipes=str(tmp_path)))
        assert plan.notices == ["built with the recipe owner_model/qnn/npu/fill-mask_w8a16"]
        return {spec.name: spec.params for spec in plan.stages}

    one = keys(optim={"gelu_fusion": True}, quant={"samples": 3})
    two = keys(optim={"gelu_fusion": True}, quant={"samples": 4})
    changed = {name for name in one if one[name] != two[name]}
    assert changed == {"quantize"}
    three = keys(optim={}, quant={"samples": 4}, auto=False)
    assert {name for name in two if two[name] != three[name]} == {"optimize"}
    assert "recipe" not in three["export"]
