"""What `modelmill compile` was asked to make of the packages of a sweep, as the state records it.

No catalog says it, so a resume finds here the cells that are still to be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matrix.globs import matches
from matrix.model import Cell, Plan, PlannedModel
from matrix.needs import compiling
from matrix.plan_record import BadRecord, plan_from_record, plan_to_record
from matrix.status import Status
from state.reading import StateReader
from state.records import Kind

if TYPE_CHECKING:
    from state.state import State

COMPILING = "compiling"
_DONE = {Status.PUBLISHED, Status.UNCHANGED}


@dataclass(frozen=True, slots=True)
class Compiling:
    """All that was asked for, the last word on each cell."""

    plan: Plan | None = None
    emulated: bool = False
    """Whether an emulator was allowed."""

    def cell(self, name: str) -> Cell | None:
        """The cell of that id."""
        return (
            next((one for one in self.plan.cells() if one.id == name), None) if self.plan else None
        )

    def allowing(self, emulated: bool) -> Compiling:
        """The same where an emulator is allowed now."""
        if self.plan is None or not (emulated or self.emulated):
            return self
        models = tuple(
            replace(model, cells=tuple(_emulated(cell) for cell in model.cells))
            for model in self.plan.models
        )
        return Compiling(replace(self.plan, models=models), emulated=True)

    def unfinished(
        self, state: StateReader, sweep_id: int, only: Sequence[str]
    ) -> tuple[PlannedModel, ...]:
        """The models with the cells that are not published; `only`: globs, none for all."""
        if self.plan is None:
            return ()
        done = {one.cell for one in state.outcomes(sweep_id, brief=True) if one.status in _DONE}
        found = []
        for model in self.plan.models:
            cells = tuple(
                cell
                for cell in model.cells
                if cell.id not in done and (not only or matches(cell.id, only))
            )
            found += [replace(model, cells=cells)] if cells else []
        return tuple(found)


def note_compiling(state: State, sweep_id: int, plan: Plan, *, emulated: bool) -> None:
    """Record the cells of a plan that are made from packages."""
    models = tuple(
        replace(model, cells=cells)
        for model in plan.models
        if (cells := tuple(cell for cell in model.cells if cell.origin is not None))
    )
    if models:
        record = plan_to_record(replace(plan, models=models, notices=()))
        told = {"plan": record, "emulated": emulated}
        state.note(sweep_id, Kind.NOTICE, {COMPILING: told})


def recorded_compiling(state: StateReader, sweep_id: int) -> Compiling:
    """What is recorded. A record that cannot be read is left out: the command makes it again."""
    found = Compiling()
    for told in _records(state, sweep_id):
        try:
            plan = plan_from_record(told["plan"])
        except (BadRecord, LookupError, TypeError):
            continue
        if found.plan is not None:
            plan = replace(plan, models=_joined(found.plan.models, plan.models))
        found = Compiling(plan, emulated=found.emulated or bool(told.get("emulated")))
    return found


def merged(plan: Plan, models: tuple[PlannedModel, ...]) -> Plan:
    """A plan with cells that are made from packages, where it has not planned them itself."""
    planned = {cell.id for cell in plan.cells()}
    more = (
        replace(model, cells=tuple(cell for cell in model.cells if cell.id not in planned))
        for model in models
    )
    return replace(plan, models=_joined(plan.models, tuple(one for one in more if one.cells)))


def _emulated(cell: Cell) -> Cell:
    if cell.profile is None:
        return cell
    real, emulated = (compiling(cell.profile.label, emulated=one) for one in (False, True))
    return replace(cell, needs=tuple(emulated if word == real else word for word in cell.needs))


def _records(state: StateReader, sweep_id: int) -> Iterator[Mapping[str, Any]]:
    for event in state.events(sweep_id, kind=Kind.NOTICE):
        if event.data and COMPILING in event.data:
            yield event.data[COMPILING]


def _joined(
    first: tuple[PlannedModel, ...], second: tuple[PlannedModel, ...]
) -> tuple[PlannedModel, ...]:
    """The models of both; of a cell that both have, the second."""
    models = {model.name: model for model in first}
    for model in second:
        if known := models.get(model.name):
            cells: dict[str, Cell] = {cell.id: cell for cell in (*known.cells, *model.cells)}
            model = replace(known, cells=tuple(cells.values()))  # noqa: PLW2901 - the joined one
        models[model.name] = model
    return tuple(models.values())
