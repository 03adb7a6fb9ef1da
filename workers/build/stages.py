"""What a build reports: its stage runs, and the rungs that verification climbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a cell: whether it was reused, and its costs."""

    stage: str
    component: str
    key: str
    parts: Mapping[str, Any]
    reused: bool
    seconds: float
    """In this build; almost none if reused."""
    bytes: int
    peak_memory: int
    """In the run that made the bytes."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the verification ladder with its evidence; `passed` None: could not be run."""

    name: str
    passed: bool | None
    detail: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    waived: str = ""
    """Why the catalog accepts its failure."""


_DOING = {
    "export": "exporting",
    "inputs": "making inputs",
    "optimize": "optimizing",
    "rewrites": "finding rewrites",
    "quantize": "quantizing",
    "share": "sharing weights",
    "compile": "compiling",
}


def doing(stage: str, component: str = "") -> str:
    """A running stage as people read it: `quantizing decoder`."""
    return f"{_DOING.get(stage, stage)} {component}".rstrip()
