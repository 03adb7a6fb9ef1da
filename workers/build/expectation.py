"""The disk and memory that a stage is expected to take: by earlier runs, else by the engine."""

from __future__ import annotations

from typing import Protocol

from matrix.model import Cell
from workers.build.graph import StageTask
from workers.engine import BuildPlan


class Expectation(Protocol):
    """Remembers earlier builds; 0 means unknown."""

    def disk_of(self, cell: Cell, stage: str, component: str) -> int:
        """Bytes that a stage (of a component) made when it last ran."""

    def memory_of(self, cell: Cell, stage: str, component: str) -> int:
        """Bytes that it took at its peak."""


class Unknown:
    """Remembers nothing."""

    def disk_of(self, _cell: Cell, _stage: str, _component: str) -> int:
        return 0

    def memory_of(self, _cell: Cell, _stage: str, _component: str) -> int:
        return 0


def disk_needed(past: Expectation, cell: Cell, plan: BuildPlan, task: StageTask) -> int:
    """Bytes that a stage may have on the disk at once: copied inputs, scratch files, outputs."""
    made = past.disk_of(cell, task.spec.name, task.component)
    if not made:
        return plan.disk
    return 2 * made + sum(file.size for files in task.inputs.values() for file in files)


def memory_needed(past: Expectation, cell: Cell, plan: BuildPlan, task: StageTask) -> int:
    """Bytes of memory that a stage takes at its peak."""
    return past.memory_of(cell, task.spec.name, task.component) or plan.memory
