"""The providers of Windows ML, with a stand-in of its package."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from matrix.targets import load_targets
from tests.fakes import windowsml
from tests.fakes.windowsml import EpReadyState, Offered
from workers.engine import StageError
from workers.host.client import Host, Reply
from workers.runtimes import windowsml as subject
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import KINDS, WINDOWS_ML, Kind, Missing, Runtime
from workers.runtimes.windowsml import WindowsMlService

OPENVINO, RTX = "OpenVINOExecutionProvider", "NvTensorRTRTXExecutionProvider"
TARGETS = load_targets()


@dataclass
class Hardware:
    """A device of ONNX Runtime."""

    type: str = "OrtHardwareDeviceType.GPU"
    vendor: str = "Intel"


@dataclass
class Device:
    """What a registered library offers."""

    ep_name: str
    device: Hardware = field(default_factory=Hardware)
    ep_metadata: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Device]]]:
    """The devices that each library brings once it is registered, by the name of the provider."""
    brings: dict[str, list[Device]] = {}
    there: list[Device] = []

    def register(name: str, path: str) -> None:
        assert path == Offered(name).library
        if name not in brings:
            raise RuntimeError("Error 126 while loading it")
        there.extend(brings[name])

    monkeypatch.setitem(sys.modules, "windowsml", windowsml)
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", register)
    monkeypatch.setattr(subject, "devices", lambda: there)
    monkeypatch.setattr(subject, "version", lambda _name: "2.5.96")
    yield brings
    windowsml.OFFERED.clear()
    windowsml.RELEASED.clear()


def call(op: str = "discover", **args: Any) -> Any:
    return WindowsMlService().call(op, args, lambda _text: None)


def test_a_provider_is_made_ready_and_registered_and_tells_its_devices(
    machine: dict[str, list[Device]],
) -> None:
    windowsml.OFFERED.append(Offered(OPENVINO, state=EpReadyState.NotReady))
    npu = Device(OPENVINO, Hardware("OrtHardwareDeviceType.NPU"), {"os_driver_version": "32.0.1"})
    machine[OPENVINO] = [Device(OPENVINO), npu]
    gpu, own = (Runtime(**row) for row in call())
    assert (own.provider, own.device, own.emulated) == (OPENVINO, "npu", False)
    assert own.version == (
        f"Windows ML 2.5.96's {OPENVINO} 1.8.84.0, onnxruntime {onnxruntime.__version__}, "
        "driver 32.0.1"
    )
    assert (gpu.device, "driver" in gpu.version) == ("gpu", False)
    assert windowsml.OFFERED[0].downloads == 0
    gc.collect()
    assert not windowsml.RELEASED, "the catalog is kept: releasing it crashes some machines"


def test_what_is_not_present_is_downloaded_only_when_asked(
    machine: dict[str, list[Device]],
) -> None:
    windowsml.OFFERED.append(Offered(RTX, state=EpReadyState.NotPresent))
    # The library writes its name in another case than the catalog.
    machine[RTX] = [Device("NvTensorRtRtxExecutionProvider")]
    (row,) = call()
    assert row["why"].endswith("it can be downloaded, and is not on this machine")
    assert row["hint"] == f"modelmill doctor --install-ep {RTX}"
    assert windowsml.OFFERED[0].downloads == 0
    assert call("install", provider=RTX.lower()) == {
        "provider": RTX, "version": "1.8.84.0", "state": "Ready",
    }  # fmt: skip
    assert windowsml.OFFERED[0].downloads == 1
    assert [row["device"] for row in call()] == ["gpu"]


def test_a_download_may_be_allowed_for_all(machine: dict[str, list[Device]]) -> None:
    windowsml.OFFERED.append(Offered(OPENVINO, state=EpReadyState.NotPresent))
    machine[OPENVINO] = [Device(OPENVINO)]
    assert [row["device"] for row in call(download=True)] == ["gpu"]


def test_one_provider_that_fails_costs_no_other(machine: dict[str, list[Device]]) -> None:
    windowsml.OFFERED += [
        Offered("QNNExecutionProvider", state=EpReadyState.NotReady, fails="0x80073CF3"),
        Offered("VitisAIExecutionProvider"),
        Offered("MIGraphXExecutionProvider"),
        Offered(RTX, library=""),
        Offered(OPENVINO),
    ]
    machine[OPENVINO] = [Device(OPENVINO)]
    machine["MIGraphXExecutionProvider"] = []
    rows = {row["provider"]: row for row in call(download=True)}
    assert rows[OPENVINO]["device"] == "gpu"
    whys = {name: row["why"].partition(": ")[2] for name, row in rows.items() if "why" in row}
    assert whys == {
        "QNNExecutionProvider": "it cannot be loaded: 0x80073CF3",
        "VitisAIExecutionProvider": "it cannot be loaded: Error 126 while loading it",
        "MIGraphXExecutionProvider": "it has no device on this machine",
        RTX: "it is ready, but names no library",
    }


def test_only_what_windows_offers_can_be_installed(machine: dict[str, list[Device]]) -> None:
    windowsml.OFFERED.append(Offered(OPENVINO, state=EpReadyState.NotPresent, fails="no network"))
    with pytest.raises(StageError, match=f"offers {OPENVINO} for this machine, and no {RTX}"):
        call("install", provider=RTX)
    with pytest.raises(StageError, match=f"{OPENVINO} cannot be downloaded: no network"):
        call("install", provider=OPENVINO)


GPU = Runtime("windowsml", OPENVINO, "gpu", "Windows ML")
EMULATOR = Runtime("qnn", "QNNExecutionProvider", "npu", "2", emulated=True)
NPU = Runtime("windowsml", "QNNExecutionProvider", "npu", "Windows ML")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """What each kind's process answers; others are not installed."""
    answers: dict[str, list[dict[str, Any]]] = {"onnxruntime": []}

    def discover(_host: Host, _op: str, _args: Any, *_more: Any, **_words: Any) -> Reply:
        return Reply(answers[_host.spec.name], 0, 0.0)

    monkeypatch.setattr(Host, "call", discover)
    monkeypatch.setattr(Kind, "installed", property(lambda self: self.name in answers))
    return answers


def runtimes(folder: Path) -> Runtimes:
    return Runtimes(folder, pythons={"windowsml": Path("python.exe")})


def test_windows_ml_comes_first_and_a_device_before_its_emulator(
    tmp_path: Path, found: dict[str, list[dict[str, Any]]]
) -> None:
    other = Runtime("openvino", OPENVINO, "gpu", "openvino 2026")
    found |= {"windowsml": [asdict(GPU), asdict(NPU)], "openvino": [asdict(other)]}
    found["qnn"] = [asdict(EMULATOR)]
    assert runtimes(tmp_path).for_target(TARGETS.get("ov_gpu")) == GPU
    assert runtimes(tmp_path).for_target(TARGETS.get("qnn_npu")) == NPU
    found["windowsml"] = []
    assert runtimes(tmp_path).for_target(TARGETS.get("ov_gpu")) == other
    assert runtimes(tmp_path).for_target(TARGETS.get("qnn_npu")) == EMULATOR


def test_what_is_missing_is_told_by_every_kind_that_could_have_it(
    tmp_path: Path, found: dict[str, list[dict[str, Any]]]
) -> None:
    why = {"provider": OPENVINO, "device": "", "why": "not present", "hint": "download it"}
    found["windowsml"] = [why]
    missing = runtimes(tmp_path).for_target(TARGETS.get("ov_npu"))
    assert isinstance(missing, Missing)
    assert missing.why == (
        "not present; openvino is not installed; onnxruntime-ep-openvino is not installed"
    )
    assert (missing.device, missing.hint) == ("npu", "download it")
    other = runtimes(tmp_path).for_target(TARGETS.get("vitisai_npu"))
    assert isinstance(other, Missing)
    assert other.why == "Windows ML offers no VitisAIExecutionProvider for this machine"


def test_elsewhere_windows_ml_is_no_kind(
    tmp_path: Path, found: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    there = Runtimes(tmp_path)
    assert not any(one.provider == WINDOWS_ML.title for one in there.all())
    missing = there.for_target(TARGETS.get("vitisai_npu"))
    assert isinstance(missing, Missing)
    assert missing.why.startswith("VitisAIExecutionProvider is not registered")
    assert WINDOWS_ML in KINDS
    assert not found.get("windowsml")
