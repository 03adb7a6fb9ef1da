"""The kinds of runtimes, those found on this machine, and why others are missing.

A kind is the package that executes a provider, with the service in its host.

A provider that no row names is looked up in ONNX Runtime itself, which lists the providers compiled
into it. On Windows the providers of Windows ML come before all others: they are what apps use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from machine.installation import install
from matrix.status import FailureClass
from workers.engine import version
from workers.session import CPU

QNN = "QNNExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
WEBGPU = "WebGpuExecutionProvider"
UNSUPPORTED, PREFER = "EP_UNSUPPORTED", "EP_SUPPORTED_PREFER_RECOMPILATION"
"""ONNX Runtime's words for compiled models that the provider of a machine cannot use, or uses with
a loss; without a word they fit."""
SHARED = "this emulator cannot open a context that holds several graphs"
VIRTUAL = "the device that it is compiled for is not here"
"""Why a compiled model is opened nowhere here."""
AGAIN = "compile it again for the provider and driver of this machine"


@dataclass(frozen=True, slots=True)
class Kind:
    """A package that executes models."""

    name: str
    """Also its setting: `[runtime.NAME] python = ...`."""
    target: str
    """The service of its host process."""
    providers: tuple[str, ...]
    """Empty: it says itself which it has on a machine."""
    distributions: tuple[str, ...]
    """Any one of them provides it."""
    extra: str
    """Our optional dependency that installs it; empty: it needs an environment of its own."""
    system: str = ""
    """The only `sys.platform` on which its package exists."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of its process."""
    compiles: bool = True
    """Whether it writes compiled models, for providers that can."""
    last: bool = False
    """It compiles only where no other kind has the provider."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return ", ".join(self.providers) or "Windows ML"

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        if self.extra:
            return install(self.extra)
        return f"modelmill engine install {self.name}"

    @property
    def installed(self) -> bool:
        """Whether our own interpreter has it, without importing it."""
        return any(map(version, self.distributions))

    @property
    def possible(self) -> bool:
        """Whether its package exists for this system."""
        return self.system in {"", sys.platform}


ORT = Kind(
    "onnxruntime",
    "workers.verify.checker:Checker",
    (CPU,),
    ("onnxruntime", "onnxruntime-windowsml", "onnxruntime-directml", "onnxruntime-gpu"),
    "build",
)
WINDOWS_ML = Kind(
    "windowsml",
    "workers.runtimes.windowsml:WindowsMlService",
    (),
    ("windowsml",),
    "build",
    system="win32",
)
KINDS = (
    ORT,
    WINDOWS_ML,
    Kind("qnn", "workers.runtimes.plugins:QnnService", (QNN,), ("onnxruntime-qnn",), "qnn"),
    Kind(
        "webgpu",
        "workers.runtimes.plugins:WebGpuService",
        (WEBGPU,),
        ("onnxruntime-ep-webgpu",),
        "webgpu",
        # Without a GPU it then computes on the CPU, through a Vulkan driver that does so.
        env={"ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1"},
    ),
    # Before the plug-in: it has a CPU device on every x86-64, and computes in float32 there.
    Kind(
        "openvino",
        "workers.runtimes.ov:OpenVinoService",
        (OPENVINO,),
        ("openvino",),
        "openvino",
        compiles=False,
    ),
    Kind(
        "openvino_plugin",
        "workers.runtimes.plugins:OpenVinoPluginService",
        (OPENVINO,),
        ("onnxruntime-ep-openvino",),
        "openvino-plugin",
    ),
    # Intel ended it with version 1.24: the plug-in follows it.
    Kind(
        "openvino_ep",
        "workers.runtimes.ort:OpenVinoEpService",
        (OPENVINO,),
        ("onnxruntime-openvino",),
        "",
        last=True,
    ),
)


def kind_named(name: str) -> Kind | None:
    """The kind of that name."""
    return next((kind for kind in KINDS if kind.name == name), None)


def kinds_for(provider: str) -> Iterator[Kind]:
    """The kinds that may execute a provider, the preferred one first."""
    if provider != CPU:
        for kind in KINDS:
            if kind is not ORT and (not kind.providers or provider in kind.providers):
                yield kind
    yield ORT


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
    virtual: str = ""
    """The generation of a device that is not here: it is compiled for, and runs nothing."""

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
        for name in ("level", "virtual"):
            if not told[name]:
                del told[name]
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
