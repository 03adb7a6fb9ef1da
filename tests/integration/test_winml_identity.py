"""The artifacts of the winml engine are winml-cli's own, byte for byte, and made once."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.winml_line import (
    FLAGS,
    arguments,
    builder,
    cell,
    folder_entry,
    model_digests,
    model_folder,
    plan_of,
    reference,
    run,
    winml_python,
)
from workers.engine import SOURCE

pytestmark = [pytest.mark.winml, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("winml-models")


@pytest.mark.parametrize("name", ["bert", "vit", "resnet", "minilm", "bart"])
def test_every_target_has_the_bytes_of_the_command_line(
    name: str, models: Path, tmp_path: Path
) -> None:
    folder = model_folder(name, models)
    expected = reference(folder, tmp_path / "reference")
    plan = plan_of({name: folder_entry(name, folder)}, tmp_path)
    with builder(tmp_path) as made:
        built = {item.target.label: made.build(item) for item in plan.cells()}
        assert {label: model_digests(one) for label, one in built.items()} == expected
        assert list(built) == list(FLAGS)

        ran = [task for one in built.values() for task in one.stages if not task.reused]
        keys = Counter(task.key for task in ran)
        assert set(keys.values()) == {1}
        assert sum(task.stage == "export" for task in ran) == 1
        distinct = {digest for files in expected.values() for digest in files.values()}
        stored = {
            entry.sha256
            for one in built.values()
            for _task, action in made.keys(cell(plan, one.cell_id.partition("@")[2]))
            if action is not None
            for entry in action.files
        }
        assert distinct <= stored
        optimized = [task for task in ran if task.stage == "optimize"]
        components = max(len(built["mlas_cpu"].manifest["components"]), 1)
        assert len(optimized) == 6 * components, "the three targets without rule data share one"

        again = [made.build(item) for item in plan.cells()]
        assert all(task.reused for one in again for task in one.stages)
        assert [one.tree for one in again] == [one.tree for one in built.values()]


def test_the_two_npus_share_one_quantized_model(models: Path, tmp_path: Path) -> None:
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    with builder(tmp_path) as made:
        made.build(cell(plan, "qnn_npu"))
        second = made.build(cell(plan, "ov_npu"))
    assert [task.reused for task in second.stages if task.stage == "quantize"] == [True]
    assert [task.reused for task in second.stages if task.stage == "optimize"] == [False]


@pytest.mark.parametrize(("precision", "label"), [("fp16", "dml_gpu"), ("w8a8", "qnn_npu")])
def test_a_precision_of_the_catalog(
    precision: str, label: str, models: Path, tmp_path: Path
) -> None:
    folder = model_folder("bert", models)
    expected = reference(folder, tmp_path / "reference", [label], "--precision", precision)
    entry = f'{folder_entry("bert", folder)}\nprecision = "{precision}"'
    plan = plan_of({"bert": entry}, tmp_path)
    with builder(tmp_path) as made:
        assert model_digests(made.build(cell(plan, label))) == expected[label]


def test_one_process_for_all_targets_is_a_fair_reference(models: Path, tmp_path: Path) -> None:
    folder = model_folder("bert", models)
    labels = ("mlas_cpu", "qnn_npu")
    expected = reference(folder, tmp_path / "together", labels)
    for label in labels:
        out = tmp_path / label
        run([str(winml_python()), "-m", "winml.modelkit", "build", *arguments(label, folder, out)])
        alone = hashlib.sha256((out / "model.onnx").read_bytes()).hexdigest()
        assert alone == expected[label]["model.onnx"]


def test_a_random_model_is_built_as_the_folder_that_is_made_of_it(tmp_path: Path) -> None:
    random = (
        'task = "text-classification"\n[model.random]\narchitecture = "bert"\nseed = 7\n'
        "config = { hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, "
        "intermediate_size = 64, vocab_size = 300, max_position_embeddings = 32 }"
    )
    plan = plan_of({"random": random}, tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    with builder(tmp_path) as made:
        labels = ("qnn_npu", "mlas_cpu")
        ours = {label: model_digests(made.build(cell(plan, label))) for label in labels}
        task, action = made.keys(cell(plan, "qnn_npu"))[0]
        assert task.spec.name == "weights"
        assert list(task.spec.inputs) == [SOURCE]
        assert action is not None
        made.store.materialize(action.files, folder)
    assert (folder / "model.safetensors").is_file()
    assert ours == reference(folder, tmp_path / "reference", labels)


def test_a_recipe_is_an_input(models: Path, tmp_path: Path) -> None:
    folder = model_folder("bert", models)
    recipe = tmp_path / "recipes/bert/qnn/npu/text-classification_w8a16_config.json"
    recipe.parent.mkdir(parents=True)
    ep, device, *precision = FLAGS["qnn_npu"]
    run(
        [
            *(str(winml_python()), "-m", "winml.modelkit", "config", "-m", str(folder)),
            *("-o", str(recipe), "--ep", ep, "--device", device, *precision, "--no-compile"),
        ]
    )
    authored = json.loads(recipe.read_text())
    authored["auto"] = False
    authored["optim"] = {"gelu_fusion": True}
    authored["quant"] |= {"samples": 3, "model_id": str(folder)}
    recipe.write_text(json.dumps(authored))

    out = tmp_path / "reference"
    run(
        [
            *(str(winml_python()), "-m", "winml.modelkit", "build"),
            *arguments("qnn_npu", folder, out, "-c", str(recipe)),
        ]
    )
    entry = folder_entry("bert", folder)
    plain = plan_of({"bert": entry}, tmp_path)
    plan = plan_of({"bert": entry + '\nrecipes = "recipes"'}, tmp_path)
    with builder(tmp_path) as made:
        generated = made.build(cell(plain, "qnn_npu"))
        built = made.build(cell(plan, "qnn_npu"))
        elsewhere = made.build(cell(plan, "ov_npu"))
    expected = hashlib.sha256((out / "model.onnx").read_bytes()).hexdigest()
    assert model_digests(built) == {"model.onnx": expected}
    assert model_digests(generated) != model_digests(built)
    assert model_digests(elsewhere) == model_digests(generated)
    assert built.manifest["notices"] == [
        "built with the recipe bert/qnn/npu/text-classification_w8a16"
    ]
    facts = {stage["stage"]: stage["facts"] for stage in built.manifest["stages"]}
    assert facts["optimize"]["analysis"] is None
    assert facts["quantize"]["calibration"]["samples"] == 3


@pytest.mark.slow
def test_weights_stored_apart(models: Path, tmp_path: Path) -> None:
    folder = model_folder("wide", models)
    labels = ("qnn_npu", "mlas_cpu")
    expected = reference(folder, tmp_path / "reference", labels)
    assert "model.onnx.data" in expected["mlas_cpu"]
    plan = plan_of({"wide": folder_entry("wide", folder)}, tmp_path)
    with builder(tmp_path) as made:
        ours = {label: model_digests(made.build(cell(plan, label))) for label in labels}
    assert ours == expected
