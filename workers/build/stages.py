"""What is told of a build while it goes on and afterwards: stage runs and verification rungs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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


class Observer(Protocol):
    """Who wants to see a build go by."""

    def stage_started(self, cell_id: str, stage: str, component: str) -> None:
        """A stage is going to run (reused ones are not announced)."""

    def stage_finished(self, cell_id: str, run: StageRun) -> None:
        """A stage has run or was found in the store."""

    def progress(self, cell_id: str, text: str) -> None:
        """A running stage says how far it is."""


class Unobserved:
    """Nobody does."""

    def stage_started(self, cell_id: str, stage: str, component: str) -> None:
        """Not shown."""

    def stage_finished(self, cell_id: str, run: StageRun) -> None:
        """Not shown."""

    def progress(self, cell_id: str, text: str) -> None:
        """Not shown."""
