"""Device profiles: the shipped ones, one's own, and providers that cannot compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.errors import PlanError, UsageError
from matrix.profiles import Profiles, load_profiles
from matrix.targets import load_targets
from tests.plans.models import write

TARGETS = load_targets()
SHIPPED = load_profiles(TARGETS)


def own(tmp_path: Path, text: str) -> Profiles:
    path = write(tmp_path, text, "targets.toml")
    return load_profiles(load_targets(path), path)


def test_the_shipped_profiles_aim_at_known_devices() -> None:
    rows = [(row.label, row.target, row.runtime, dict(row.options)) for row in SHIPPED]
    assert rows == [
        ("htp68", "qnn_npu", "qnn", {"htp_arch": "68", "soc_model": "37"}),
        ("htp73", "qnn_npu", "qnn", {"htp_arch": "73", "soc_model": "60"}),
        ("htp81", "qnn_npu", "qnn", {"htp_arch": "81", "soc_model": "88"}),
        ("ov_cpu", "ov_cpu", "openvino_ep", {"device_type": "CPU"}),
        ("ov_gpu", "ov_gpu", "openvino_ep", {"device_type": "GPU"}),
        ("ov_npu", "ov_npu", "openvino_ep", {"device_type": "NPU"}),
        ("npu4000", "ov_npu", "openvino_plugin@4000", {}),
        ("npu5010", "ov_npu", "openvino_plugin@5010", {}),
        ("npu5020", "ov_npu", "openvino_plugin@5020", {}),
        ("npu6010", "ov_npu", "openvino_plugin@6010", {}),
    ]
    assert all(SHIPPED.tried[row.label] for row in SHIPPED)
    assert all(row.why for row in SHIPPED)
    assert [row.label for row in SHIPPED if row.emulator] == ["htp68", "htp73", "htp81"]
    assert [row.label for row in SHIPPED if row.asks_device] == ["ov_cpu", "ov_gpu", "ov_npu"]


def test_profiles_are_found_by_label_and_by_target() -> None:
    assert SHIPPED.get("HTP73").label == "htp73"
    assert SHIPPED.get("ov-cpu").label == "ov_cpu"
    assert [row.label for row in SHIPPED.for_target("qnn_npu")] == ["htp68", "htp73", "htp81"]
    with pytest.raises(UsageError, match=r"unknown profile 'htp37' \(did you mean htp73"):
        SHIPPED.get("htp37")


@pytest.mark.parametrize(
    ("name", "provider"),
    [("cpu", "CPUExecutionProvider"), ("mlas_cpu", "CPUExecutionProvider"),
     ("dml", "DmlExecutionProvider"), ("dml_gpu", "DmlExecutionProvider"),
     ("cuda", "CUDAExecutionProvider"), ("MIGraphX", "MIGraphXExecutionProvider"),
     ("CUDAExecutionProvider", "CUDAExecutionProvider"),
     ("webgpu_gpu", "WebGpuExecutionProvider")],
)  # fmt: skip
def test_a_provider_that_cannot_compile_ahead_is_refused_with_those_that_can(
    name: str, provider: str
) -> None:
    with pytest.raises(UsageError) as caught:
        SHIPPED.get(name)
    assert f"{provider} cannot compile ahead of time" in str(caught.value)
    assert "profiles that can: htp68, htp73, htp81, ov_cpu, ov_gpu, ov_npu" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [("qnn", r"QNNExecutionProvider .*one of its profiles: htp68, htp73, htp81"),
     ("openvino", r"OpenVINOExecutionProvider .*ov_cpu, ov_gpu, ov_npu"),
     ("vitisai", r"VitisAIExecutionProvider .*write one into a targets file"),
     ("vitisai_npu", r"VitisAIExecutionProvider .*no profile here")],
)  # fmt: skip
def test_a_provider_named_for_a_profile_is_told_its_profiles(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        SHIPPED.get(name)


def test_a_profile_of_ones_own_is_data_beside_the_targets(tmp_path: Path) -> None:
    found = own(
        tmp_path,
        '[[target]]\nlabel = "rtx_gpu"\nep = "nvtensorrtrtx"\ndevice = "gpu"\n'
        '[[profile]]\nlabel = "rtx"\ntarget = "rtx_gpu"\nruntime = "onnxruntime"\n'
        'backend = "session"\nembed = true\nasks_device = true\n'
        'options = { config = "a.json" }\nfile_options = ["config"]\n',
    )
    row = found.get("rtx")
    assert (row.backend, row.embed, row.asks_device) == ("session", True, True)
    assert row.file_options == ("config",)
    assert found.get("htp73") == SHIPPED.get("htp73")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('label = "a b"', "may hold only a-z"),
        ('target = "qnn_nqu"', "unknown target 'qnn_nqu' (did you mean qnn_npu"),
        ('target = "mlas_cpu"', "CPUExecutionProvider cannot compile ahead of time"),
        ('backend = "sesion"', "unknown backend 'sesion' (did you mean session?)"),
        ("options = { vtcm_mb = 8 }", "options: 'vtcm_mb' must be a printable string, not 8"),
        ('file_options = ["config"]', "file_options names 'config', which options lacks"),
        ('emulater = true', "unknown key 'emulater' (did you mean emulator?)"),
        ('runtime = 7', "runtime must be a string"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_profile_is_said_in_one_line(
    tmp_path: Path, line: str, problem: str
) -> None:
    rows = {"label": 'label = "mine"', "target": 'target = "qnn_npu"', "runtime": 'runtime = "qnn"'}
    rows[line.split(" ", maxsplit=1)[0]] = line
    with pytest.raises(PlanError) as caught:
        own(tmp_path, "[[profile]]\n" + "\n".join(rows.values()) + "\n")
    assert len(caught.value.problems) == 1
    assert problem in str(caught.value)
    assert "profile 1" in str(caught.value)
