"""Devices that are not here: a plug-in compiles for them, and nothing is run on them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from matrix.profiles import load_profiles
from matrix.targets import load_targets
from workers.compile.devices import parameters, runtime_for
from workers.compile.files import check_compiled
from workers.host.client import Host, Reply
from workers.host.watch import UNWATCHED
from workers.runtimes import ort, plugins
from workers.runtimes.plugins import OpenVinoPluginService
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import OPENVINO, VIRTUAL, Kind, Missing, Runtime

TARGETS = load_targets()
PROFILES = load_profiles(TARGETS)
NPU = TARGETS.get("ov_npu")


def device(kind: str, platform: str = "") -> Any:
    virtual = {"is_virtual": "1"} if platform else {}
    return SimpleNamespace(
        ep_name=OPENVINO,
        ep_metadata={"npu_platform": platform} if platform else {},
        device=SimpleNamespace(type=f"Type.{kind}", vendor="Intel", metadata=virtual),
    )


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With a GPU, and two virtual NPUs if the package has their compiler."""
    there: list[Any] = []

    def register(name: str, path: str) -> None:
        assert Path(path).parent == tmp_path
        found = [device("NPU", "4000"), device("NPU", "5010")]
        there.extend(found if name == f"{OPENVINO}.virtual" else [device("GPU")])

    def make(*, compiler: bool = True) -> OpenVinoPluginService:
        if compiler:
            (tmp_path / "openvino_intel_npu_compiler.dll").touch()
        return OpenVinoPluginService()

    package = SimpleNamespace(get_library_path=lambda: str(tmp_path / "plugin.dll"))
    monkeypatch.setitem(sys.modules, "onnxruntime_ep_openvino", package)
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", register)
    for module in (ort, plugins):
        monkeypatch.setattr(module, "devices", lambda: there)
    monkeypatch.setattr(plugins, "version", lambda _name: "1.8.1")
    return make


def test_virtual_devices_are_offered_where_the_package_has_their_compiler(service: Any) -> None:
    rows = [Runtime(**row) for row in service().discover()]
    assert [(one.device, one.virtual) for one in rows] == [
        ("gpu", ""), ("npu", "4000"), ("npu", "5010"),
    ]  # fmt: skip
    assert rows[1].version.startswith("onnxruntime-ep-openvino 1.8.1, onnxruntime ")
    assert "virtual" not in rows[0].to_json()


def test_without_the_compiler_there_are_only_the_devices_of_the_machine(service: Any) -> None:
    assert [row["device"] for row in service(compiler=False).discover()] == ["gpu"]


def test_a_session_is_for_the_generation_and_gets_no_word_of_the_old_package(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    options = SimpleNamespace(add_provider_for_devices=lambda *given: taken.append(given))
    monkeypatch.setattr(ort, "_plain_options", lambda: options)
    one = next(row for row in service().discover() if row.get("virtual") == "5010")
    OpenVinoPluginService.session_options(
        OpenVinoPluginService.__new__(OpenVinoPluginService),
        {**one, "options": {"device_type": "NPU", "num_streams": "1"}},
    )
    (((chosen,), extra),) = taken
    assert (chosen.ep_metadata["npu_platform"], extra) == ("5010", {"num_streams": "1"})


@pytest.fixture
def runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Any) -> Runtimes:
    rows = service().discover()

    def call(host: Host, *_args: Any, **_words: Any) -> Reply:
        return Reply(rows if host.spec.name == "openvino_plugin" else [], 0, 0.0)

    monkeypatch.setattr(Host, "call", call)
    monkeypatch.setattr(Kind, "installed", property(lambda self: self.name == "openvino_plugin"))
    return Runtimes(tmp_path / "logs")


def test_profiles_compile_for_them_and_nothing_is_verified_on_them(
    runtimes: Runtimes, tmp_path: Path
) -> None:
    here, there = PROFILES.get("npu4000"), PROFILES.get("npu6010")
    found = runtime_for(runtimes, here, NPU, emulated=False)
    assert isinstance(found, Runtime)
    assert parameters(found, here)["virtual"] == "4000"
    missing = runtime_for(runtimes, there, NPU, emulated=False)
    assert isinstance(missing, Missing)
    assert missing.why == "onnxruntime-ep-openvino cannot compile for the npu 6010 on this system"
    assert isinstance(runtimes.for_target(NPU), Missing)
    file = tmp_path / "model.onnx"
    checked = check_compiled(runtimes, found, file, file, tmp_path, UNWATCHED, shared=False)
    assert (checked.passed, checked.detail) == (None, VIRTUAL)


def test_the_plug_in_comes_before_the_package_that_it_follows(runtimes: Runtimes) -> None:
    gpu = runtime_for(runtimes, PROFILES.get("ov_gpu"), TARGETS.get("ov_gpu"), emulated=False)
    assert isinstance(gpu, Runtime)
    assert gpu.kind == "openvino_plugin"
    cpu = runtime_for(runtimes, PROFILES.get("ov_cpu"), TARGETS.get("ov_cpu"), emulated=False)
    assert isinstance(cpu, Missing)
    assert cpu.hint == "modelmill engine install openvino_ep"
