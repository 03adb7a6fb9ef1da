"""Our TOML catalogs: what every key becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.catalog import load_catalog, packaged
from matrix.errors import PlanError
from matrix.model import Overrides, SourceKind
from matrix.policy import overrides_of
from matrix.targets import load_targets
from tests.plans.models import TARGETS, load, write

ONE = '[[model]]\nid = "a/b"\ntask = "fill-mask"\n'


def test_every_key_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "calib.jsonl").touch()
    text = """
[[model]]
id = "microsoft/resnet-50"
task = "image-classification"
model_type = "resnet"
group = "Vision"
priority = "P0"
revision = "v1.0"
precision = ["w8a8", "INT8"]
opset = 18
shapes = { batch_size = 1, width = 64 }
timeout = 900
publish_timeout = 60.5
skip = "known to fail"
remote_code = true
pickle = true
needs = ["os:windows"]
dataset = { path = "calib.jsonl", samples = 32, columns = { text = "line" } }
samples = { kind = "synthetic", reason = "a test" }
tags = ["x"]
[model.target.qnn_npu]
precision = "w8a16"
[model.target."OV-NPU"]
opset = 20
"""
    (model,) = load(tmp_path, text).models
    assert (model.id, model.task, model.name) == (
        "microsoft/resnet-50",
        "image-classification",
        "microsoft/resnet-50:image-classification",
    )
    assert (model.model_type, model.group, model.priority) == ("resnet", "Vision", "P0")
    assert model.source.kind is SourceKind.HUB
    assert (model.source.ref, model.source.revision) == ("microsoft/resnet-50", "v1.0")
    assert model.overrides == Overrides(
        ("w8a8", "w8"), 18, {"batch_size": 1, "width": 64}, 900.0, 60.5, "known to fail"
    )
    assert model.per_target == {
        "qnn_npu": Overrides(precision=("w8a16",)),
        "ov_npu": Overrides(opset=20),
    }
    assert (model.remote_code, model.pickle, model.needs) == (True, True, ("os:windows",))
    assert model.dataset == {
        "path": str(tmp_path / "calib.jsonl"), "samples": 32, "columns": {"text": "line"}
    }  # fmt: skip
    assert model.samples == {"kind": "synthetic", "reason": "a test"}
    assert model.extra == {"tags": ["x"]}
    assert model.where == "catalog.toml: model 1 (microsoft/resnet-50)"


def test_a_model_of_two_keys_has_plain_defaults(tmp_path: Path) -> None:
    (model,) = load(tmp_path, ONE).models
    assert (model.model_type, model.group, model.priority) == ("unknown", "", "P2")
    assert model.overrides == Overrides()
    assert not model.remote_code
    assert not model.pickle


def test_the_three_other_sources(tmp_path: Path) -> None:
    (tmp_path / "models" / "x").mkdir(parents=True)
    text = """
[[model]]
id = "mine"
task = ""
folder = "models/x"
[[model]]
id = "alias"
task = "fill-mask"
hub = "other/id"
[[model]]
id = "tiny"
task = "fill-mask"
random = { architecture = "bert", seed = 7, config = { hidden_size = 32, layers = [1, 2] } }
"""
    folder, hub, random = load(tmp_path, text).models
    assert (folder.source.kind, folder.source.ref) == (
        SourceKind.FOLDER,
        str(tmp_path / "models" / "x"),
    )
    assert Path(folder.source.ref).is_absolute()
    assert (hub.id, hub.source.ref) == ("alias", "other/id")
    assert (random.source.ref, random.source.seed, random.model_type) == ("bert", 7, "bert")
    assert random.source.config == {"hidden_size": 32, "layers": [1, 2]}


def test_defaults_are_inherited_and_the_models_own_is_stronger(tmp_path: Path) -> None:
    text = """
[defaults]
task = "fill-mask"
group = "G"
revision = "v1"
shapes = { batch_size = 1, width = 8 }
[defaults.target."*_npu"]
skip = "not yet"
[[model]]
id = "a/b"
shapes = { batch_size = 4 }
[model.target.qnn_npu]
opset = 19
[[model]]
id = "tiny"
group = "H"
random = { architecture = "bert" }
"""
    one, two = load(tmp_path, text).models
    assert (one.group, one.task, one.source.revision) == ("G", "fill-mask", "v1")
    assert one.overrides.shapes == {"batch_size": 4, "width": 8}
    assert list(one.per_target) == ["qnn_npu", "*_npu"]  # the first match wins: the model's own
    assert (two.group, two.source.revision) == ("H", None)


def test_targets_of_a_model_by_any_spelling(tmp_path: Path) -> None:
    text = """
[defaults]
task = "fill-mask"
target.openvino_npu = { opset = 14 }
[[model]]
id = "a/b"
target.OV-NPU = { opset = 15 }
target."*_NPU" = { opset = 16 }
target."{qnn,ov}_gpu" = { opset = 18 }
"""
    (model,) = load(tmp_path, text).models
    found = {row.label: overrides_of(model, row).opset for row in TARGETS}
    assert found == {
        "qnn_npu": 16,
        "qnn_gpu": 18,
        "ov_cpu": None,
        "ov_npu": 15,
        "ov_gpu": 18,
        "mlas_cpu": None,
        "dml_gpu": None,
        "vitisai_npu": 16,
    }


def test_a_packaged_name_is_found_from_anywhere(tmp_path: Path) -> None:
    assert "winml" in packaged()
    assert "targets" not in packaged()
    assert load_catalog("winml", base=tmp_path / "gone").name == "winml"


def test_a_catalog_may_speak_of_targets_that_the_user_adds(tmp_path: Path) -> None:
    extra = write(
        tmp_path, '[[target]]\nlabel = "mine_gpu"\nep = "cuda"\ndevice = "gpu"\n', "t.toml"
    )
    path = write(tmp_path, ONE + "[model.target.mine_gpu]\nopset = 18\n")
    with pytest.raises(PlanError, match="unknown target 'mine_gpu'"):
        load_catalog(path, base=tmp_path, targets=TARGETS)
    catalog = load_catalog(path, base=tmp_path, targets=load_targets(extra))
    assert list(catalog.models[0].per_target) == ["mine_gpu"]


def test_ready_onnx_files_of_this_machine_of_a_folder_and_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "models" / "sub").mkdir(parents=True)
    for name in ("alone.onnx", "models/sub/model.onnx"):
        (tmp_path / name).write_bytes(b"")
    text = """
[defaults]
task = "any-task"
revision = "v1"
[[model]]
id = "alone"
onnx = "alone.onnx"
[[model]]
id = "inside"
folder = "models"
onnx = "sub/model.onnx"
[[model]]
id = "hub"
hub = "org/repo"
onnx = "onnx/model.onnx"
[[model]]
id = "org/repo/inference.onnx"
"""
    sources = [model.source for model in load(tmp_path, text).models]
    assert [(one.kind, one.ref, one.file, one.revision) for one in sources] == [
        (SourceKind.FOLDER, str(tmp_path), "alone.onnx", None),
        (SourceKind.FOLDER, str(tmp_path / "models"), "sub/model.onnx", None),
        (SourceKind.HUB, "org/repo", "onnx/model.onnx", "v1"),
        (SourceKind.HUB, "org/repo", "inference.onnx", "v1"),
    ]
