"""The artifacts of the winml engine are winml-cli's own, byte for byte, and made once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.engines.winml import (
    FLAGS,
    arguments,
    cell,
    final_files,
    folder_entry,
    model_digests,
    model_folder,
    plan_of,
    run,
    winml_python,
)
from tests.engines.winml_command import CommandLine
from workers.build.builder import Builder
from workers.engine import SOURCE

pytestmark = [pytest.mark.winml, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    "name",
    [
        "bert",
        pytest.param("minilm", marks=pytest.mark.slow),  # a larger bert, with trained weights
        pytest.param("vit", marks=pytest.mark.slow),
        "resnet",
        "bart",
    ],
)
def test_every_target_has_the_bytes_of_the_command_line(
    name: str, models: Path, winml: CommandLine, engine: Builder, tmp_path: Path
) -> None:
    folder = model_folder(name, models)
    expected = winml.build(folder, tmp_path / "reference")
    plan = plan_of({name: folder_entry(name, folder)}, tmp_path)
    built = {item.target.label: engine.build(item) for item in plan.cells()}
    assert {label: model_digests(one) for label, one in built.items()} == expected
    assert list(built) == list(FLAGS)

    ran = [task for one in built.values() for task in one.stages if not task.reused]
    keys = Counter(task.key for task in ran)
    assert set(keys.values()) == {1}
    assert sum(task.stage == "export" for task in ran) == 1
    optimized = [task for task in ran if task.stage == "optimize"]
    components = max(len(built["mlas_cpu"].manifest["components"]), 1)
    assert len(optimized) == 6 * components, "the three targets without rule data share one"

    stored = Counter(path.name for path in (tmp_path / "store").rglob("*") if path.is_file())
    distinct = {digest for files in expected.values() for digest in files.values()}
    assert {digest: stored[digest] for digest in distinct} == dict.fromkeys(distinct, 1)

    again = [engine.build(item) for item in plan.cells()]
    assert all(task.reused for one in again for task in one.stages)
    assert [one.tree for one in again] == [one.tree for one in built.values()]


def test_weights_stored_apart(
    models: Path, winml: CommandLine, engine: Builder, tmp_path: Path
) -> None:
    folder = model_folder("wide", models)
    labels = ("qnn_npu", "mlas_cpu")
    expected = winml.build(folder, tmp_path / "reference", labels)
    assert "model.onnx.data" in expected["mlas_cpu"]
    plan = plan_of({"wide": folder_entry("wide", folder)}, tmp_path)
    assert {label: model_digests(engine.build(cell(plan, label))) for label in labels} == expected


def test_the_two_npus_share_one_quantized_model(
    models: Path, engine: Builder, tmp_path: Path
) -> None:
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    engine.build(cell(plan, "qnn_npu"))
    second = engine.build(cell(plan, "ov_npu"))
    assert [task.reused for task in second.stages if task.stage == "quantize"] == [True]
    assert [task.reused for task in second.stages if task.stage == "optimize"] == [False]


@pytest.mark.parametrize(("precision", "label"), [("fp16", "dml_gpu"), ("w8a8", "qnn_npu")])
def test_a_precision_of_the_catalog(
    precision: str, label: str, models: Path, winml: CommandLine, engine: Builder, tmp_path: Path
) -> None:
    folder = model_folder("bert", models)
    expected = winml.build(folder, tmp_path / "reference", [label], "--precision", precision)
    entry = f'{folder_entry("bert", folder)}\nprecision = "{precision}"'
    plan = plan_of({"bert": entry}, tmp_path)
    assert model_digests(engine.build(cell(plan, label))) == expected[label]


@pytest.mark.parametrize("label", ["mlas_cpu", "qnn_npu"])
def test_it_is_the_command_line(
    label: str, models: Path, winml: CommandLine, tmp_path: Path
) -> None:
    """What the other tests compare with is what a process for the command makes."""
    folder = model_folder("bert", models)
    expected = winml.build(folder, tmp_path / "together", [label])
    out = tmp_path / "alone"
    run([str(winml_python()), "-m", "winml.modelkit", "build", *arguments(label, folder, out)])
    assert final_files(out) == expected[label]


def test_a_random_model_is_built_as_the_folder_that_is_made_of_it(
    winml: CommandLine, engine: Builder, tmp_path: Path
) -> None:
    random = (
        'task = "text-classification"\n[model.random]\narchitecture = "bert"\nseed = 7\n'
        "config = { hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, "
        "intermediate_size = 64, vocab_size = 300, max_position_embeddings = 32 }"
    )
    plan = plan_of({"random": random}, tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    labels = ("qnn_npu", "mlas_cpu")
    ours = {label: model_digests(engine.build(cell(plan, label))) for label in labels}
    task, action = engine.keys(cell(plan, "qnn_npu"))[0]
    assert task.spec.name == "weights"
    assert list(task.spec.inputs) == [SOURCE]
    assert action is not None
    engine.store.materialize(action.files, folder)
    assert (folder / "model.safetensors").is_file()
    assert ours == winml.build(folder, tmp_path / "reference", labels)
