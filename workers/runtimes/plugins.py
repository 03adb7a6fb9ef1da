"""Providers that come as a package of their own, registered with ONNX Runtime in the host."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from workers.engine import version
from workers.runtimes.ort import OrtService, device_of, devices
from workers.runtimes.runtime import OPENVINO, QNN, WEBGPU
from workers.sources.errors import one_line

HTP = {"htp_arch": "73", "soc_model": "60"}
"""The emulated device: the HTP v73 of a Snapdragon X Elite."""
VIRTUAL = ".virtual"
"""The end of a name under which a library offers devices that are not here."""
DRIVER = "os_driver_version"
"""ONNX Runtime's word for the version of the device's driver, which not every provider tells."""

ADDITION = (
    b'\x08\x08:5\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n'
    b"\x02\x08\x02b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x02B\x04\n\x00\x10\r"
)
"""The ONNX model y = x + x."""


def told_version(name: str, item: Any) -> str:
    """What executes models on a device: the provider, ONNX Runtime, and the driver if known."""
    import onnxruntime

    words = [name, f"onnxruntime {onnxruntime.__version__}"]
    if driver := dict(item.ep_metadata).get(DRIVER):
        words.append(f"driver {driver}")
    return ", ".join(words)


class PluginService(OrtService):
    """A package with a provider's library."""

    provider: str
    module: str
    by_device = frozenset({"device_type"})

    def __init__(self) -> None:
        import onnxruntime

        self.package = import_module(self.module)
        path = self.package.get_library_path()
        onnxruntime.register_execution_provider_library(self.provider, path)

    def discover(self) -> list[dict[str, Any]]:
        """One runtime for every device of the provider."""
        distribution = self.module.replace("_", "-")
        name = f"{distribution} {version(distribution)}"
        return [
            row
            for item in devices()
            if item.ep_name == self.provider
            and (row := self.described(item, told_version(name, item)))
        ]

    def described(self, item: Any, told: str) -> dict[str, Any]:
        """The row of a device; empty: it is of no use."""
        return self._row(self.provider, device_of(item), told, detail=str(item.device.vendor))


class OpenVinoPluginService(PluginService):
    """Intel's: the devices of this machine, and NPUs that are not here, to compile for.

    The package for Windows has the NPU's compiler, that for Linux has not.
    """

    kind, provider, module = "openvino_plugin", OPENVINO, "onnxruntime_ep_openvino"

    def __init__(self) -> None:
        import onnxruntime

        super().__init__()
        path = Path(self.package.get_library_path())
        if any(path.parent.glob("*intel_npu_compiler*")):
            onnxruntime.register_execution_provider_library(f"{OPENVINO}{VIRTUAL}", str(path))

    def described(self, item: Any, told: str) -> dict[str, Any]:
        """A virtual NPU with its generation."""
        generation = _generation(item)
        if not generation:
            return super().described(item, told)
        detail = f"NPU {generation}, which is not here"
        return self._row(OPENVINO, device_of(item), told, detail=detail, virtual=generation)

    def _fits(self, item: Any, runtime: Mapping[str, Any]) -> bool:
        return super()._fits(item, runtime) and _generation(item) == runtime.get("virtual", "")


def _generation(item: Any) -> str:
    """Of a virtual NPU; empty: the device is here."""
    there = dict(item.device.metadata).get("is_virtual") != "1"
    return "" if there else str(dict(item.ep_metadata).get("npu_platform", ""))


class QnnService(PluginService):
    """Qualcomm's: a real NPU, or on x86-64 the emulator of its HTP."""

    kind, provider, module = "qnn", QNN, "onnxruntime_qnn"

    def described(self, item: Any, told: str) -> dict[str, Any]:
        """Without an NPU the plug-in offers a CPU device: that is the emulator."""
        device, htp = device_of(item), self.package.get_qnn_htp_path()
        if device == "gpu":
            backend = self.package.get_qnn_gpu_path()
            return self._row(QNN, "gpu", told, options={"backend_path": backend})
        if device == "npu":
            return self._row(QNN, "npu", told, options={"backend_path": htp})
        own = {device_of(one) for one in devices() if one.ep_name == QNN}
        if "npu" in own or not Path(htp).exists():
            return {}
        return self._row(
            QNN, "npu", told, emulated=True, detail="HTP emulator", shared_contexts=False,
            options={"backend_path": htp, **HTP},
        )  # fmt: skip

    def _fits(self, item: Any, runtime: Any) -> bool:
        device = "cpu" if runtime.get("emulated") else runtime["device"]
        return bool(item.ep_name == QNN) and device_of(item) == device


class WebGpuService(PluginService):
    """ONNX Runtime's own: a GPU through Direct3D 12, Metal or Vulkan.

    Where there is no GPU, a Vulkan driver that computes on the CPU (Mesa's lavapipe) stands for it.
    """

    kind, provider, module = "webgpu", WEBGPU, "onnxruntime_ep_webgpu"

    def described(self, item: Any, told: str) -> dict[str, Any]:
        """The plug-in offers the CPU as a device even where no driver computes on it."""
        row = super().described(item, told)
        if device_of(item) == "gpu":
            return row
        row |= {"device": "gpu", "emulated": True, "detail": "a Vulkan driver on the CPU"}
        try:
            self.open(ADDITION, row).close()
        except Exception as error:  # noqa: BLE001 - whatever a graphics driver raises
            reason = one_line(error, 2000).rpartition(" was false. ")[2]
            why = f"there is no GPU, and no driver that computes on the CPU: {reason}"
            return {"provider": WEBGPU, "device": "gpu", "why": why, "hint": "see docs/runtimes.md"}
        return row

    def _fits(self, item: Any, runtime: Any) -> bool:
        device = "cpu" if runtime.get("emulated") else runtime["device"]
        return bool(item.ep_name == WEBGPU) and device_of(item) == device
