"""Which stages a cell has, and that targets share what they have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines.winml_requests import make_request
from workers.engine import SOURCE, Request, StageError, StageSpec
from workers.winml_engine import WinmlEngine
from workers.winml_engine.engine import CODE, DISTRIBUTIONS

pytestmark = pytest.mark.usefixtures("winml")

CPU = ("cpu", "cpu", "CPUExecutionProvider")
DML = ("dml", "gpu", "DmlExecutionProvider")
VITIS = ("vitisai", "npu", "VitisAIExecutionProvider")
QNN_NPU = ("qnn", "npu", "QNNExecutionProvider")
OV_NPU = ("openvino", "npu", "OpenVINOExecutionProvider")


def stages(request: Request) -> dict[str, StageSpec]:
    return {spec.name: spec for spec in WinmlEngine().plan(request).stages}


def test_a_float_cell_ends_with_the_optimized_model() -> None:
    assert list(stages(make_request(*CPU))) == [
        "weights", "config", "export", "inputs", "optimize",
    ]  # fmt: skip


def test_a_quantized_cell_ends_with_the_quantized_model() -> None:
    found = stages(make_request(*QNN_NPU, precision="w8a16"))
    assert list(found)[-1] == "quantize"
    assert found["quantize"].params == {"precision": "w8a16", "calibration": "local"}
    assert found["quantize"].inputs == ("optimize", "config", "weights")


def test_half_precision_needs_neither_samples_nor_source() -> None:
    found = stages(make_request(*DML, precision="fp16"))
    assert found["quantize"].params == {"precision": "fp16"}
    assert found["quantize"].inputs == ("optimize", "config")


def test_build_options_are_parameters_of_the_stages_that_use_them() -> None:
    build = {
        "flags": ["gelu_fusion"], "without_flags": ["constant_folding"], "analyzer": False,
        "samples": 4, "calibration": "entropy", "float_ops": ["Softmax"],
    }  # fmt: skip
    plain = stages(make_request(*QNN_NPU, precision="w8a16"))
    found = stages(make_request(*QNN_NPU, precision="w8a16", build=build))
    assert found["optimize"].params == {
        **plain["optimize"].params,
        "switches": {"gelu_fusion": True, "constant_folding": False},
        "analyzer": False,
    }
    assert found["quantize"].params == {
        **plain["quantize"].params,
        "options": {"calibration": "entropy", "float_ops": ["Softmax"], "samples": 4},
    }
    for name in ("weights", "config", "export", "inputs"):
        assert found[name] == plain[name]
    assert stages(make_request(*DML, build={"samples": 4})) == stages(make_request(*DML))


def test_a_folder_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    source: dict[str, Any] = {
        "kind": "folder",
        "ref": str(tmp_path),
        "revision": None,
        "seed": 0,
        "config": {},
    }
    found = stages(make_request(*CPU, source=source))
    assert list(found) == ["config", "export", "inputs", "optimize"]
    assert found["config"].inputs == (SOURCE,)


def test_targets_without_rule_data_are_optimized_alike() -> None:
    cpu, dml, vitis = (stages(make_request(*target)) for target in (CPU, DML, VITIS))
    assert cpu["optimize"] == dml["optimize"] == vitis["optimize"]
    assert cpu["optimize"].params == {"rules": None}


def test_targets_with_rule_data_are_not() -> None:
    one, two = (stages(make_request(*target, precision="w8a16")) for target in (QNN_NPU, OV_NPU))
    assert one["optimize"].params == {"rules": "QNNExecutionProvider_NPU"}
    assert two["optimize"].params == {"rules": "OpenVINOExecutionProvider_NPU"}
    assert one["quantize"] == two["quantize"]
    assert one["export"] == two["export"]


def test_a_vendors_patterns_count_as_rule_data() -> None:
    found = stages(make_request("qnn", "cpu", "QNNExecutionProvider"))
    assert found["optimize"].params == {"rules": "QNNExecutionProvider_CPU"}


def test_an_unknown_provider_has_no_rule_data() -> None:
    found = stages(make_request("new", "gpu", "NewExecutionProvider"))
    assert found["optimize"].params == {"rules": None}


def test_the_export_differs_only_where_it_is_bent_differently() -> None:
    cpu, vitis, dml = (stages(make_request(*target))["export"] for target in (CPU, VITIS, DML))
    assert cpu == vitis
    assert cpu.params == {"compatibility": {"transformers_attention": "eager"}}
    assert dml.params == {"compatibility": {"transformers_attention": "sdpa"}}


def test_opset_and_shapes_are_parameters_only_if_asked_for() -> None:
    assert stages(make_request(*CPU))["config"].params == {"task": "fill-mask"}
    asked = stages(make_request(*CPU, opset=20, shapes={"sequence_length": 64}))["config"]
    assert asked.params["opset"] == 20
    assert asked.params["shapes"] == {"sequence_length": 64}


def test_a_precision_that_winml_cannot_make_is_refused_before_any_work() -> None:
    with pytest.raises(StageError, match="does not build w8") as caught:
        stages(make_request(*CPU, precision="w8"))
    assert caught.value.failure == "UNSUPPORTED"
    assert "w8a16" in caught.value.hint


def test_a_dataset_judges_and_does_not_calibrate(tmp_path: Path) -> None:
    engine = WinmlEngine()
    file = tmp_path / "samples.npz"
    file.write_bytes(b"one")
    dataset = {"path": str(file)}
    plain = engine.plan(make_request(*CPU, dataset=dataset))
    quantized = engine.plan(make_request(*QNN_NPU, precision="w8a16", dataset=dataset))
    assert plain.notices == []
    assert quantized.notices == [
        "the dataset serves verification only: winml-cli calibrates with its own"
    ]
    before = stages(make_request(*CPU, dataset=dataset))
    file.write_bytes(b"two")
    after = stages(make_request(*CPU, dataset=dataset))
    assert {name for name in before if before[name] != after[name]} == {"inputs"}


def test_all_targets_are_judged_on_the_same_samples() -> None:
    cells = [(*CPU, "fp32"), (*DML, "fp16"), (*QNN_NPU, "w8a16")]
    found = [stages(make_request(*cell))["inputs"] for cell in cells]
    assert found[0] == found[1] == found[2]
    assert found[0].inputs == ("weights", "config", "export")


def test_every_stage_names_tools_that_exist() -> None:
    engine = WinmlEngine()
    for spec in engine.plan(make_request(*QNN_NPU, precision="w8a16")).stages:
        assert set(spec.tools) <= set(engine.tools())
    code = {f"engine.{stage}" for stage in CODE}
    assert set(engine.tools()) == {*code, "onnxruntime", *DISTRIBUTIONS}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"winml-cli": None}, "winml-cli is not installed"),
        ({"winml-cli": "0.5.0"}, r"drives winml-cli 0\.4\.0, not 0\.5\.0"),
        ({"onnxruntime": None}, "lacks onnxruntime"),
    ],
)
def test_another_environment_is_refused(
    winml: dict[str, str], change: dict[str, str | None], line: str
) -> None:
    for name, version in change.items():
        del winml[name]
        if version:
            winml[name] = version
    with pytest.raises(StageError, match=line) as caught:
        WinmlEngine().plan(make_request(*CPU))
    assert caught.value.failure == "UNSUPPORTED"
    assert "modelmill engine install winml" in caught.value.hint


def test_another_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 12, 1, "final", 0))
    with pytest.raises(StageError, match=r"needs Python 3\.11, not 3\.12\.1"):
        WinmlEngine().plan(make_request(*CPU))


def test_damaged_data_of_winml_is_one_line(tmp_path: Path) -> None:
    for file in (tmp_path / "site").rglob("avaliable_providers.json"):
        file.write_text("{")
    with pytest.raises(StageError, match="winml-cli is damaged: avaliable_providers"):
        WinmlEngine().plan(make_request(*CPU))
