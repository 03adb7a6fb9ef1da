"""The exports of the winml engine compute what their models do, with the checkpoint's weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from matrix.status import FailureClass
from tests.engines.hosted import SharedHost
from tests.engines.winml import (
    builder,
    cell,
    folder_entry,
    model_folder,
    plan_of,
    run,
    spec_of,
    winml_python,
)
from workers.build.builder import Builder
from workers.errors import BuildFailed

pytestmark = [pytest.mark.winml, pytest.mark.timeout(900)]

DAMAGED = """
import onnx
from onnx import numpy_helper
from workers.winml_engine import WinmlEngine
from workers.winml_engine import export

compare = export.compare


def damaged(job, parts, temp):
    file = job.out / "model.onnx"
    model = onnx.load(file)
    matrix = next(one for one in model.graph.initializer if len(one.dims) == 2)
    value = numpy_helper.to_array(matrix)
    matrix.CopyFrom(numpy_helper.from_array(value * 1.1, matrix.name))
    onnx.save(model, file)
    return compare(job, parts, temp)


class Damaged(WinmlEngine):
    def run(self, job):
        export.compare = damaged
        return super().run(job)
"""
"""Its exporter makes a weight a tenth larger."""

LEAVE_OUT = """
import sys
from safetensors.torch import load_file, save_file
file, *parts = sys.argv[1:]
found = load_file(file)
save_file(
    {name: one for name, one in found.items() if not any(part in name for part in parts)},
    file, {"format": "pt"},
)
"""


def exported(made: Builder, entry: str, root: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Facts and information of the export."""
    built = made.build(cell(plan_of({"model": entry}, root), "mlas_cpu"))
    facts = next(one["facts"] for one in built.manifest["stages"] if one["stage"] == "export")
    info = next(one["info"] for one in built.build_record["stages"] if one["stage"] == "export")
    built.release()
    return facts, info


@pytest.mark.parametrize(
    ("name", "parts"),
    [("bert", ["."]), ("vit", ["."]), ("minilm", ["."]), ("bart", ["decoder", "encoder"])],
)
def test_an_export_is_compared_with_its_model(
    models: Path, engine: Builder, tmp_path: Path, name: str, parts: list[str]
) -> None:
    entry = folder_entry(name, model_folder(name, models))
    facts, info = exported(engine, entry, tmp_path)
    told = facts["compared"]
    print(name, facts.get("notice"), told, info["compared"])
    assert sorted(told["parts"]) == parts
    assert {one["model"] for one in told["parts"].values()} == {"unchanged"}
    assert told["samples"] == 8
    figures = [row["snr"] for part in info["compared"].values() for row in part.values()]
    assert min(figures) >= 47
    assert facts["weights"]["from_source"] == 1.0
    assert facts["weights"]["new"] == []


def test_a_random_model_says_that_no_weight_is_from_a_source(
    engine: Builder, tmp_path: Path
) -> None:
    config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    values = ", ".join(f"{key} = {value}" for key, value in config.items())
    random = f'random = {{ architecture = "bert", seed = 4, config = {{ {values} }} }}'
    facts, _info = exported(engine, f'task = "fill-mask"\n{random}', tmp_path)
    assert facts["weights"] == {"from_source": 0.0, "seed": 4}
    assert "parts" in facts["compared"]


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[SharedHost]:
    (tmp_path / "damaged_winml.py").write_text(DAMAGED)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        found = SharedHost(spec_of(winml_python(), "damaged_winml:Damaged"), log_dir=tmp_path)
        yield found
        found.end()


def test_an_export_that_computes_something_else_fails(
    models: Path, damaged: SharedHost, tmp_path: Path
) -> None:
    plan = plan_of({"bert": folder_entry("bert", model_folder("bert", models))}, tmp_path)
    with builder(tmp_path, host=damaged) as made, pytest.raises(BuildFailed) as caught:
        made.build(cell(plan, "mlas_cpu"))
    assert caught.value.failure is FailureClass.EXPORT
    assert "the export does not compute what the model does: logits: " in caught.value.reason


def test_a_checkpoint_of_another_model_fails(models: Path, engine: Builder, tmp_path: Path) -> None:
    def entry(name: str, *parts: str, more: str = "") -> str:
        folder = tmp_path / name
        shutil.copytree(model_folder("bert", models), folder)
        run([str(winml_python()), "-c", LEAVE_OUT, str(folder / "model.safetensors"), *parts])
        return f'task = "text-classification"\nfolder = {json.dumps(str(folder))}\n{more}'

    for number, (parts, said) in enumerate({
        ("layer.1.output",): "the checkpoint lacks 4 of the model's",
        ("embeddings",): "the checkpoint lacks 5 of the model's",
        ("classifier",): "the checkpoint has no weights for the model's head",
    }.items()):  # fmt: skip
        with pytest.raises(BuildFailed, match=said) as caught:
            exported(engine, entry(f"lacks{number}", *parts), tmp_path / f"plan{number}")
        assert caught.value.failure is FailureClass.EXPORT
        assert "\n" not in str(caught.value)
    new = entry("new", "classifier", more='new_head = "it is trained later"')
    facts, _info = exported(engine, new, tmp_path / "plan")
    assert facts["weights"]["new"] == ["classifier.bias", "classifier.weight"]
    assert 0.9 < facts["weights"]["from_source"] < 1.0
    assert "the head is new" in facts["notice"]
