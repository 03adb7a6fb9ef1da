"""What inspection and the runtimes have told of a package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.runtimes.found import Missing, Runtime

Json = Mapping[str, Any]


@dataclass(slots=True)
class Ran:
    """A package on one runtime."""

    runtime: Runtime
    own: bool
    """Whether it is the target's own execution provider and device."""
    models: dict[str, Json] = field(default_factory=dict)
    """Model file -> what `measure` answered."""
    joined: Json = field(default_factory=dict)
    """Two towers end to end."""

    def problem(self, *points: str) -> list[str]:
        """What went wrong at these points (open, feed, run, crash), a line for each model."""
        return [
            f"{model} on {self.runtime.name}: {seen['error']}"
            for model, seen in self.models.items()
            if seen.get("at") in points
        ]

    def taken(self) -> tuple[int, int]:
        """Nodes that the provider itself took, and all nodes."""
        mine = every = 0
        for seen in self.models.values():
            for provider, count in dict(seen.get("nodes", {})).items():
                every += count
                mine += 0 if self._fell_back(provider) else count
        return mine, every

    def _fell_back(self, provider: str) -> bool:
        return provider == "CPUExecutionProvider" and self.runtime.provider != provider

    def to_json(self) -> dict[str, Any]:
        """For the build record."""
        return {
            **self.runtime.to_json(),
            "name": self.runtime.name,
            "own": self.own,
            "nodes": {model: dict(seen.get("nodes", {})) for model, seen in self.models.items()},
            "seconds": {
                model: {"open": seen.get("open_seconds"), "run": seen.get("run_seconds")}
                for model, seen in self.models.items()
            },
        }


@dataclass(slots=True)
class Seen:
    """Everything."""

    files: list[str] = field(default_factory=list)
    """What is wrong with the files of the package themselves."""
    models: dict[str, Json] = field(default_factory=dict)
    """Model file -> what `inspect` answered."""
    exported: dict[str, Json] = field(default_factory=dict)
    """The same of the export, where a rung needs it."""
    passes: tuple[str, ...] | None = None
    """Passes that the manifest says were blocked; None: it does not say."""
    reference: dict[str, Json] = field(default_factory=dict)
    """Model file -> the export on ONNX Runtime CPU."""
    no_reference: str = ""
    """Why there is nothing to compare with."""
    stopped: str = ""
    """Why nothing was run at all."""
    runs: list[Ran] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    """Why the target's own provider could not be used."""
