"""The kinds of runtimes: the package that executes a provider, and the service in its host.

A provider that no row names is looked up in ONNX Runtime itself, which lists the providers compiled
into it and, on Windows, those that Windows ML has registered.
"""

from __future__ import annotations

from dataclasses import dataclass

from workers.engine import version

CPU = "CPUExecutionProvider"
QNN = "QNNExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"


@dataclass(frozen=True, slots=True)
class Kind:
    """A package that executes models."""

    name: str
    """Also its setting: `[runtime.NAME] python = ...`."""
    target: str
    """The service of its host process."""
    providers: tuple[str, ...]
    distributions: tuple[str, ...]
    """Any one of them provides it."""
    extra: str
    """Our optional dependency that installs it; empty: it needs an environment of its own."""

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        if self.extra:
            return f"pip install 'modelmill[{self.extra}]'"
        return f"modelmill engine install {self.name}"

    @property
    def installed(self) -> bool:
        """Whether our own interpreter has it, without importing it."""
        return any(map(version, self.distributions))


ORT = Kind(
    "onnxruntime",
    "workers.verify.checker:Checker",
    (CPU,),
    ("onnxruntime", "onnxruntime-windowsml", "onnxruntime-directml", "onnxruntime-gpu"),
    "build",
)
KINDS = (
    ORT,
    Kind("qnn", "workers.runtimes.ort:QnnService", (QNN,), ("onnxruntime-qnn",), "qnn"),
    Kind("openvino", "workers.runtimes.ov:OpenVinoService", (OPENVINO,), ("openvino",), "openvino"),
    # Last, because OpenVINO's own runtime is the one that checks portable models for its provider.
    Kind(
        "openvino_ep",
        "workers.runtimes.ort:OpenVinoEpService",
        (OPENVINO,),
        ("onnxruntime-openvino",),
        "",
    ),
)


def kind_named(name: str) -> Kind | None:
    """The kind of that name."""
    return next((kind for kind in KINDS if kind.name == name), None)


def kind_for(provider: str) -> Kind:
    """The kind that executes a provider."""
    return next((kind for kind in KINDS if provider in kind.providers), ORT)
