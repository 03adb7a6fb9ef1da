"""The packages that a plan wants: an export or a cell each, with the version that carries it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from matrix.model import EXPORT, Cell, Plan, PlannedModel


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
