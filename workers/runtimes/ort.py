"""ONNX Runtime in the host: its CPU and the providers that are compiled into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from workers.engine import version
from workers.runtimes.runtime import OPENVINO, ORT
from workers.runtimes.service import RuntimeService
from workers.session import CPU, Port, processor, threads

_TYPES = {"float": "float32", "double": "float64", "bfloat16": "bfloat16"}
_LEVELS = {
    "disabled": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED",
    "all": "ENABLE_ALL",
}  # fmt: skip
_RECORD = "session.record_ep_graph_assignment_info"


class OrtSession:
    """A session of ONNX Runtime."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.inputs = [_port(item) for item in session.get_inputs()]
        self.outputs = [_port(item) for item in session.get_outputs()]

    def expect(self, names: Sequence[str]) -> None:
        """ONNX Runtime keeps the graph's names."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name."""
        values = self._session.run(None, dict(feeds))
        return {port.name: value for port, value in zip(self.outputs, values, strict=True)}

    def prepared(self, feeds: Mapping[str, Any]) -> Callable[[], object]:
        """The session's `run` of all outputs."""
        return partial(self._session.run, None, dict(feeds))

    def nodes(self) -> dict[str, int]:
        """Counted if this version of ONNX Runtime reports the assignment."""
        return {name: len(nodes) for name, nodes in self.assigned().items()}

    def assigned(self) -> dict[str, list[list[str]]]:
        """Listed if this version of ONNX Runtime reports the assignment."""
        found: dict[str, list[list[str]]] = {}
        for part in self._parts():
            rows = [[node.op_type, node.name] for node in part.get_nodes()]
            found.setdefault(part.ep_name, []).extend(rows)
        return found

    def parts(self) -> dict[str, int]:
        """Counted if this version of ONNX Runtime reports the assignment."""
        return dict(Counter(part.ep_name for part in self._parts()))

    def _parts(self) -> list[Any]:
        told = getattr(self._session, "get_provider_graph_assignment_info", list)
        return list(told())

    def times(self) -> list[dict[str, Any]]:
        """ONNX Runtime writes them to a file."""
        return []

    def close(self) -> None:
        """Release it."""
        self._session = None


class OrtService(RuntimeService):
    """The providers of ONNX Runtime itself."""

    kind = ORT.name
    by_device: Collection[str] = ()
    """Options of profiles that say what the device says already."""

    def discover(self) -> list[dict[str, Any]]:
        """Compiled-in providers and registered devices, each provider once per device."""
        import onnxruntime

        distribution = next(filter(version, ORT.distributions), "onnxruntime")
        told = f"{distribution} {onnxruntime.__version__}"
        found = {(CPU, "cpu"): self._row(CPU, "cpu", told)}
        for provider in onnxruntime.get_available_providers():
            if provider not in {CPU, "AzureExecutionProvider"}:
                found[provider, _usual_device(provider)] = self._row(
                    provider, _usual_device(provider), told
                )
        for item in devices():
            device = device_of(item)
            found.setdefault(
                (item.ep_name, device),
                self._row(item.ep_name, device, told, detail=str(item.device.vendor)),
            )
        return list(found.values())

    def load(self) -> None:
        """Import ONNX Runtime."""
        import onnxruntime

        onnxruntime.get_available_providers()

    def _row(self, provider: str, device: str, told: str, **more: Any) -> dict[str, Any]:
        return {
            "kind": self.kind, "provider": provider, "device": device, "version": told, **more,
        }  # fmt: skip

    def open(
        self,
        file: str | bytes,
        runtime: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> OrtSession:
        """A session on a provider, with the CPU for the nodes that it does not take."""
        import onnxruntime

        cpu = runtime["provider"] == CPU
        made = _plain_options() if cpu else self.session_options(runtime)
        if level := runtime.get("level"):
            levels = onnxruntime.GraphOptimizationLevel
            made.graph_optimization_level = getattr(levels, f"ORT_{_LEVELS[level]}")
        for name, value in {_RECORD: "1", **(options or {})}.items():
            if "." in name:
                made.add_session_config_entry(name, value)
            else:
                setattr(made, name, value)
        providers = [CPU] if cpu else None
        # Else a provider that fails is replaced by the CPU without a word.
        opened = onnxruntime.InferenceSession(file, made, providers=providers, enable_fallback=0)
        return OrtSession(opened)

    def session_options(self, runtime: Mapping[str, Any]) -> Any:
        """Options of sessions on a provider, for running and for compiling."""
        options = _plain_options()
        provider, given = runtime["provider"], dict(runtime.get("options", {}))
        extra = {name: value for name, value in given.items() if name not in self.by_device}
        mine = [item for item in devices() if self._fits(item, runtime)]
        if mine:
            options.add_provider_for_devices(mine[:1], extra)
        else:
            options.add_provider(provider, extra)
        return options

    def compatibility(self, file: str, runtime: Mapping[str, Any], /) -> str:
        """By the string that the provider wrote when it compiled (ONNX Runtime 1.24 and newer)."""
        from onnxruntime.capi import _pybind_state as state

        mine = [item for item in devices() if self._fits(item, runtime)]
        if not mine or not hasattr(state, "get_model_compatibility_for_ep_devices"):
            return ""
        written = state.get_compatibility_info_from_model(file, mine[0].ep_name)
        if not written:
            return ""
        try:
            return str(state.get_model_compatibility_for_ep_devices(mine[:1], written).name)
        except RuntimeError:  # QNN judges only for a real NPU
            return ""

    def _fits(self, item: Any, runtime: Mapping[str, Any]) -> bool:
        return bool(item.ep_name == runtime["provider"]) and device_of(item) == runtime["device"]


class OpenVinoEpService(OrtService):
    """ONNX Runtime with OpenVINO built in: the only one that writes and reads EPContext models.

    Its devices are not ONNX Runtime's: it lists them itself.
    """

    kind = "openvino_ep"

    def discover(self) -> list[dict[str, Any]]:
        """One runtime for every device of OpenVINO."""
        import onnxruntime
        from onnxruntime.capi import _pybind_state

        told = f"onnxruntime-openvino {onnxruntime.__version__}"
        names = _pybind_state.get_available_openvino_device_ids()
        devices = dict.fromkeys(str(name).partition(".")[0] for name in names)
        return [
            self._row(
                OPENVINO, device.lower(), told,
                options={"device_type": device}, detail=processor() if device == "CPU" else device,
            )
            for device in devices
        ]  # fmt: skip


def _plain_options() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads()
    return options


def devices() -> list[Any]:
    """Those of all registered providers."""
    import onnxruntime

    return list(onnxruntime.get_ep_devices()) if hasattr(onnxruntime, "get_ep_devices") else []


def device_of(item: Any) -> str:
    """cpu, gpu or npu."""
    return str(item.device.type).rpartition(".")[2].lower()


def _usual_device(provider: str) -> str:
    """The device of an old-style provider, which does not report it."""
    word = provider.removesuffix("ExecutionProvider").lower()
    if word in {"qnn", "vitisai"}:
        return "npu"
    return "cpu" if word in {"openvino", "xnnpack", "dnnl"} else "gpu"


def _port(item: Any) -> Port:
    """`tensor(float16)` becomes NumPy's `float16`; anything but a tensor has no type."""
    kind = str(item.type)
    inner = kind[7:-1] if kind.startswith("tensor(") else ""
    return Port(item.name, _TYPES.get(inner, inner), tuple(item.shape or ()))
