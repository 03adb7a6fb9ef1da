"""The results of discovery: the runtimes of this machine, and why others are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Runtime:
    """An execution provider on a device, ready to open sessions."""

    kind: str
    """The kind that serves it, see `kinds`."""
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

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Runtime:
        """A runtime from its JSON."""
        return cls(**value)


@dataclass(frozen=True, slots=True)
class Missing:
    """A provider and device that cannot be used here."""

    provider: str
    device: str
    why: str
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """For the build record."""
        return {"provider": self.provider, "device": self.device, "not_run": self.why}
