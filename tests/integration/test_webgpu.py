"""WebGPU as a runtime, on a GPU or on a Vulkan driver for the CPU; and a provider of Windows ML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from matrix.targets import load_targets
from tests.services import installing
from tests.sweeps.command import Project
from tests.verification.packages import claim, lab_in, model
from tests.verification.vendor import Vendor
from workers.host.watch import UNWATCHED
from workers.runtimes.pool import Runtimes
from workers.runtimes.runtime import WEBGPU, Missing, Runtime, kind_named

pytestmark = pytest.mark.engine
TARGET = load_targets().get("webgpu_gpu")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtimes, Runtime]]:
    """WebGPU here; skips where nothing computes for it."""
    installing.runtime("webgpu")
    runtimes = Runtimes(tmp_path_factory.mktemp("logs"))
    found = runtimes.for_target(TARGET)
    if isinstance(found, Missing):
        runtimes.close()
        pytest.skip(f'{found.why}; on Debian: eval "$(tests/verification/mesa FOLDER)"')
    yield runtimes, found
    runtimes.close()


@pytest.mark.vendor
def test_a_package_is_verified_on_webgpu_itself(
    gpu: tuple[Runtimes, Runtime], tmp_path: Path
) -> None:
    runtimes, own = gpu
    assert (own.provider, own.device) == (WEBGPU, "gpu")
    with lab_in(tmp_path, runtimes) as harness:
        right = harness.climb(model(), claim(target=TARGET))
    assert not right.failed
    ran = right.to_json()["runtimes"][1]
    assert (ran["provider"], ran["ran"], ran["taken"]) == (WEBGPU, True, [1, 1])
    assert ran["emulated"] == own.emulated


@pytest.mark.vendor
def test_a_provider_of_windows_ml_is_registered_in_its_process(
    gpu: tuple[Runtimes, Runtime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu
    monkeypatch.setenv("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")
    library = import_module("onnxruntime_ep_webgpu").get_library_path()
    rows = [
        {"name": WEBGPU, "version": "0.4.0.0", "state": 1, "library": library},
        {"name": "NvTensorRTRTXExecutionProvider", "state": 2, "library": "gone.dll"},
    ]
    vendor = Vendor.windows(tmp_path / "venv", rows)
    runtimes = Runtimes(tmp_path / "logs", pythons={"windowsml": vendor.python})
    windows = kind_named("windowsml")
    assert windows
    try:
        own, lacking = runtimes.of_kind(windows)
        assert isinstance(own, Runtime)
        assert isinstance(lacking, Missing)
        assert own.version.startswith(f"Windows ML 's {WEBGPU} 0.4.0.0, onnxruntime ")
        assert "--install-ep" in lacking.hint
        installed = runtimes.install("nvtensorrtrtxexecutionprovider", UNWATCHED)
        assert installed["state"] == "Ready"
        (again,) = [one for one in runtimes.of_kind(windows) if isinstance(one, Missing)]
        assert "it cannot be loaded" in again.why
    finally:
        runtimes.close()


def test_the_doctor_downloads_a_provider_of_windows_ml(project: Project, tmp_path: Path) -> None:
    rows = [{"name": "OpenVINOExecutionProvider", "state": 2, "library": "gone.dll"}]
    python = Vendor.windows(tmp_path / "venv", rows).python
    text = f"[runtime.windowsml]\npython = {json.dumps(str(python))}\n"
    (project.folder / "modelmill.toml").write_text(text, "utf-8")
    ran = project.run("doctor", "--install-ep", "openvino", "--runtimes", "windowsml", "--json")
    assert "OpenVINOExecutionProvider 1.8.84.0 is on this machine" in ran.err
    found = {one["what"]: one["detail"] for one in ran.json()}
    # The download stays with this stand-in's process; on Windows it stays with the machine.
    assert "it would run ov_cpu, ov_npu, ov_gpu" in found["runtime OpenVINOExecutionProvider"]
    refused = project.run("doctor", "--install-ep", "cuda", "--runtimes", "windowsml")
    assert (refused.code, refused.out) == (5, "")
    text = "Windows ML offers OpenVINOExecutionProvider for this machine, and no CUDA"
    assert f"error: {text}" in refused.err
