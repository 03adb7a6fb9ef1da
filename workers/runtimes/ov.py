"""OpenVINO's own runtime in the host.

ONNX Runtime's OpenVINO provider is not used: it offers a CPU device only on Intel machines, while
OpenVINO itself runs its CPU device on any x86-64. OpenVINO reads the same ONNX file and takes the
whole graph or refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from workers.runtimes.runtime import OPENVINO
from workers.runtimes.service import RuntimeService
from workers.session import Port, threads

_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64",
          "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
          "u16": "uint16", "u32": "uint32", "u64": "uint64", "boolean": "bool"}  # fmt: skip

_HINTED = ", in f32: by default it takes bf16 on processors that have it"
_PLAIN = {"Parameter", "Constant", "Const", "Result", "Input", "Output"}
"""Nodes that execute nothing."""


class OpenVinoSession:
    """A compiled model with one request."""

    def __init__(self, compiled: Any, device: str) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._device = device
        self.inputs = [_port(item, item.get_any_name()) for item in compiled.inputs]
        self.outputs = [_port(item, item.get_any_name()) for item in compiled.outputs]

    def expect(self, names: Sequence[str]) -> None:
        """A result may also have the name of a fused node; the order is the graph's."""
        if len(names) == len(self.outputs):
            self.outputs = [
                replace(port, name=name) if name in item.get_names() else port
                for port, name, item in zip(
                    self.outputs, names, self._compiled.outputs, strict=True
                )
            ]

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name, copied out of the request's own memory."""
        found = self._request.infer(dict(feeds))
        values = [found[item] for item in self._compiled.outputs]
        return {port.name: value.copy() for port, value in zip(self.outputs, values, strict=True)}

    def prepared(self, feeds: Mapping[str, Any]) -> Callable[[], object]:
        """The request's `infer` without copies of inputs and outputs."""
        infer, given = self._request.infer, dict(feeds)
        return partial(infer, given, share_inputs=True, share_outputs=True)

    def nodes(self) -> dict[str, int]:
        """All executed nodes, without constants, inputs and outputs."""
        executed = [
            item for item in self._compiled.get_runtime_model().get_ops()
            if str(_info(item)) not in _PLAIN
        ]  # fmt: skip
        return {f"OpenVINO {self._device}": len(executed)}

    def assigned(self) -> dict[str, list[list[str]]]:
        """OpenVINO takes the whole graph."""
        return {}

    def parts(self) -> dict[str, int]:
        """OpenVINO takes the whole graph."""
        return {}

    def times(self) -> list[dict[str, Any]]:
        """Of every executed node its mean since the model was opened, in whole microseconds.

        Only if the model was opened with PERF_COUNT.
        """
        means = {
            one.node_name: round(one.real_time.total_seconds() * 1e6)
            for one in self._request.profiling_info
        }
        return [
            {"mean": means.get(item.get_friendly_name(), 0), **_executed(item)}
            for item in self._compiled.get_runtime_model().get_ordered_ops()
            if str(_info(item)) not in _PLAIN
        ]

    def close(self) -> None:
        """Release it."""
        self._request = self._compiled = None


class OpenVinoService(RuntimeService):
    """The devices of OpenVINO."""

    def __init__(self) -> None:
        import openvino

        self._core = openvino.Core()
        self._version = openvino.__version__.split("-")[0]

    def discover(self) -> list[dict[str, Any]]:
        """One runtime for every device."""
        return [
            {
                "kind": "openvino",
                "provider": OPENVINO,
                "device": device.lower(),
                "version": f"openvino {self._version}",
                "detail": f"OpenVINO itself on {self._core.get_property(name, 'FULL_DEVICE_NAME')}"
                + (_HINTED if device == "CPU" else ""),
                # Plugins may choose half precision by themselves; parity judges our precision.
                "options": {"INFERENCE_PRECISION_HINT": "f32"} if device == "CPU" else {},
            }
            for device, name in self._devices().items()
        ]

    def open(
        self, file: str, runtime: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> OpenVinoSession:
        """Compile a model for a device."""
        device = str(runtime["device"]).upper()
        given = {**runtime.get("options", {}), **(options or {})}
        if device == "CPU" and threads():
            given["INFERENCE_NUM_THREADS"] = threads()
        return OpenVinoSession(self._core.compile_model(file, device, given), device)

    def _devices(self) -> dict[str, str]:
        """Of several devices of a kind (`GPU.0`, `GPU.1`) the first one is used."""
        found: dict[str, str] = {}
        for name in self._core.available_devices:
            found.setdefault(name.partition(".")[0], name)
        return found


def _info(item: Any) -> Any:
    info = item.get_rt_info()
    return info["layerType"].value if "layerType" in info else item.get_type_name()


def _executed(item: Any) -> dict[str, Any]:
    told = {key: str(value.value) for key, value in item.get_rt_info().items()}
    shape = item.get_output_partial_shape(0) if item.get_output_size() else None
    return {
        "name": item.get_friendly_name(),
        "type": told.get("layerType", item.get_type_name()),
        "precision": told.get("outputPrecisions", ""),
        "dims": [dim.get_length() for dim in shape] if shape and shape.is_static else [],
        "held": [name for name in told.get("originalLayersNames", "").split(",") if name],
    }


def _port(item: Any, name: str) -> Port:
    shape = item.get_partial_shape()
    dims = [dim.get_length() if dim.is_static else None for dim in shape]
    kind = item.get_element_type().to_string()
    return Port(name, _TYPES.get(kind, kind), tuple(dims))
