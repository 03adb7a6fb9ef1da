"""What a build reports: its stage runs, and the rungs that verification climbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a cell: run now or reused, and what it took when it ran."""

    stage: str
    component: str
    key: str
    parts: Mapping[str, Any]
    reused: bool
    seconds: float
    """Of this build: next to nothing when reused."""
    bytes: int
    peak_memory: int
    """Of the run that made the bytes, whenever that was."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the verification ladder with its evidence; `passed` None: could not be run."""

    name: str
    passed: bool | None
    detail: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    waived: str = ""
    """The reason for which the catalog accepts that it failed."""


_DOING = {
    "export": "exporting",
    "inputs": "making inputs",
    "optimize": "optimizing",
    "quantize": "quantizing",
    "compile": "compiling",
}


def doing(stage: str, component: str = "") -> str:
    """A running stage as people read it: `quantizing decoder`."""
    return f"{_DOING.get(stage, stage)} {component}".rstrip()
