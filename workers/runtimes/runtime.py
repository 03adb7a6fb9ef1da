"""The kinds of runtimes, those found on this machine, and why others are missing.

A kind is the package that executes a provider, with the service in its host.

A provider that no row names is looked up in ONNX Runtime itself, which lists the providers compiled
into it and, on Windows, those that Windows ML has registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from matrix.status import FailureClass
from workers.engine import version
from workers.session import CPU

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


@dataclass(frozen=True, slots=True)
class Runtime:
    """An execution provider on a device, ready to open sessions."""

    kind: str
    """The kind that serves it."""
    provider: str
    """ONNX Runtime's name of the execution provider."""
    device: str
    """cpu, gpu or npu."""
    version: str
    """Of the packages that execute models."""
    emulated: bool = False
    """Software computes in place of the device: values count, times do not."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the execution provider."""
    level: str = ""
    """ONNX Runtime's graph optimization level when it opens a model; empty: its own choice."""
    detail: str = ""
    shared_contexts: bool = True
    """Whether it opens a compiled context that holds several graphs."""

    @property
    def name(self) -> str:
        """As evidence and messages show it."""
        return f"{self.provider} {self.device}" + (" (emulated)" if self.emulated else "")

    def opening(self, session: Mapping[str, str]) -> Runtime:
        """The same, opening models with these settings of `matrix.session_options`."""
        options = {name: value for name, value in session.items() if name != "level"}
        level = session.get("level", self.level)
        return replace(self, options={**self.options, **options}, level=level)

    def to_json(self) -> dict[str, Any]:
        """For the pipe, for keys and for the build record."""
        told = {**asdict(self), "options": dict(self.options)}
        if not self.level:
            del told["level"]
        return told


@dataclass(frozen=True, slots=True)
class Missing:
    """A provider and device that cannot be used here."""

    provider: str
    device: str
    why: str
    hint: str = ""
    lost: FailureClass | None = None
    """How the process ended that looked for it: this says nothing about the machine."""

    @property
    def name(self) -> str:
        """What stands against it, as messages show it."""
        return f"{self.why} ({self.hint})" if self.hint else self.why

    def to_json(self) -> dict[str, Any]:
        """For the build record."""
        return {"provider": self.provider, "device": self.device, "not_run": self.why}
