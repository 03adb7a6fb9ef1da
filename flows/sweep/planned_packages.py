"""The packages that a plan wants: an export or a cell each, with the version that carries it.

The export is published once per model (and opset), and the manifest of every cell names it by its
digest. It is planned, seeded, published, recorded and resumed like a cell, as `MODEL:TASK@export`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from matrix.model import EXPORT, Cell, Plan, PlannedModel


def is_export(cell_id: str) -> bool:
    """Whether an id is an export's; no target can have that label."""
    return cell_id.rpartition("@")[2].partition(":")[0] == EXPORT


@dataclass(frozen=True, slots=True)
class PlannedPackage:
    """A version that a sweep may publish. The index is not one of them."""

    id: str
    cell: Cell
    """For an export: the first cell that is made from it."""
    is_export: bool
    package: str
    version: str

    @property
    def target(self) -> str:
        """The label under which the state files it."""
        return EXPORT if self.is_export else self.cell.column

    @property
    def as_cell(self) -> Cell:
        """The cell under the package name and version of this one."""
        return replace(self.cell, package=self.package, version=self.version)


def packages_of_model(plan: Plan, model: PlannedModel) -> Iterator[PlannedPackage]:
    """The packages of one model in build order: its exports first, then its cells."""
    if not plan.self_contained:
        for export in model.exports:
            yield PlannedPackage(export.id, export.cell, True, export.package, export.version)
    for cell in model.cells:
        yield PlannedPackage(cell.id, cell, False, cell.package, cell.version)


def packages_of(plan: Plan) -> Iterator[PlannedPackage]:
    """The packages of every model."""
    for model in plan.models:
        yield from packages_of_model(plan, model)
