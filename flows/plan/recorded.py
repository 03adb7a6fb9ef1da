"""What a sweep records about itself: its settings, and the plan and the estimates of each run.

The settings let a resume from anywhere continue the same sweep. The plans serve reports and
comparisons, which are made later, when the catalog may have changed, perhaps on another machine. A
resume also reads from here the cells that `modelmill compile` added, because no catalog lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from feed.rules import STRICTEST
from flows.settings.settings import OPTIONS, RECORDED, Settings
from matrix.codec import to_json
from matrix.globs import matches
from matrix.model import Cell, Model, Plan, PlannedModel, Target
from matrix.needs import compiling
from matrix.status import Status
from state.damage import damaged, reading
from state.errors import StateError
from state.records import Kind, SweepInfo

if TYPE_CHECKING:
    from flows.plan.estimates import Estimates
    from state.reading import StateReader
    from state.state import State

PLAN = "plan"
"""Key of the event of a run: the digest of its plan."""
CATALOG = "catalog"
"""Key of the same event: the catalog that was planned; several may share a stamp."""
FLEET = "fleet"
"""Key of the event that holds a run of a fleet."""
TUNING = "tuning"
"""Key of the settings of a sweep that tunes what it builds: what was asked for beside them."""
Json = Mapping[str, Any]
_PUBLISHED = {Status.PUBLISHED, Status.UNCHANGED}


def remember(settings: Settings, catalog: str) -> dict[str, Any]:
    """The settings of the sweep as it records them."""
    values = settings.chosen(RECORDED)
    for name in ("targets_file", "champions"):
        if name in values:
            values[name] = str(settings.path(values[name]).absolute())
    return {**values, "catalog": catalog}


def typed(recorded: Json) -> tuple[dict[str, Any], list[str]]:
    """The settings of a record, and the names of those whose values cannot be read."""
    values: dict[str, Any] = {}
    wrong = []
    for name, option in OPTIONS.items():
        if name in recorded:
            try:
                values[name] = option.recorded(recorded[name])
            except ValueError:
                wrong.append(name)
    return values, wrong


def recall(settings: Settings, stamp: str, recorded: Json) -> tuple[Settings, str]:
    """The settings of a recorded sweep, where flags and variables of now win, and its catalog."""
    known, wrong = typed(recorded)
    catalog = recorded.get("catalog")
    if not isinstance(catalog, str):
        wrong.append("catalog")
    if wrong:
        text = f"the settings of sweep {stamp} are damaged in the state: {', '.join(wrong)}"
        hint = f"modelmill sweep CATALOG --stamp {stamp} with its flags records them again"
        raise StateError(text, hint=hint)
    return settings.replaced({**known, "stamp": stamp}, f"sweep {stamp}"), str(catalog)


def note_plan(
    state: State, sweep_id: int, plan: Plan, known: Estimates | None = None, catalog: str = ""
) -> None:
    """Keep the plan of a run with its sweep, its estimates and its catalog."""
    from flows.plan.estimates import ESTIMATE, to_record
    from matrix.plan_json import plan_to_record

    told = {ESTIMATE: to_record(known)} if known is not None and known.models else {}
    state.note_plan(sweep_id, Kind.NOTICE, {**told, CATALOG: catalog}, plan_to_record(plan))


def with_other_catalogs(
    state: StateReader, sweep_id: int, plan: Plan, catalog: str, only: Sequence[str] = ()
) -> Plan:
    """A plan of this catalog with the cells that others have in the same sweep and that are not
    published, each as it was planned last. `only`: globs, none for all."""
    planned: tuple[PlannedModel, ...] = ()
    for event in state.events(sweep_id, kind=Kind.NOTICE):
        data = event.data or {}
        if PLAN in data and data.get(CATALOG, catalog) != catalog:
            for record in state.plans(sweep_id, data[PLAN]):
                planned = _joined(planned, _read(record).models)
    portable = _narrowed(planned, lambda cell: cell.origin is None)
    return merged(plan, unpublished(state, sweep_id, portable, only))


def recorded_estimates(state: StateReader, sweep_id: int) -> Estimates | None:
    """The estimates of the last run of a sweep."""
    from flows.plan.estimates import ESTIMATE, from_record

    notices = (one.data or {} for one in state.events(sweep_id, kind=Kind.NOTICE))
    records = [one[ESTIMATE] for one in notices if ESTIMATE in one]
    with reading("the estimates of the sweep"):
        return from_record(records[-1]) if records else None


def recorded_plans(state: StateReader, sweep_id: int) -> Iterator[Plan]:
    """The plans of all runs of a sweep, the last one last."""
    yield from map(_read, state.plans(sweep_id))


def _read(record: Json) -> Plan:
    # Half of what this module would import, and `status` needs only its names of events.
    from matrix.plan_json import BadRecord, plan_from_record

    try:
        return plan_from_record(record, STRICTEST)
    except BadRecord as error:
        raise damaged(f"a plan of the sweep: {error}") from error


class PlannedCells:
    """The cells of all plans recorded for a sweep; where they differ, the last plan counts."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self._cells: dict[str, Cell] = {}
        self._models: dict[str, Model] = {}
        for plan in plans:
            self._cells |= {cell.id: cell for cell in plan.cells()}
            self._models |= {planned.name: planned.model for planned in plan.models}

    @classmethod
    def of(cls, state: StateReader, sweep_id: int) -> PlannedCells:
        """Read them from the state."""
        return cls(recorded_plans(state, sweep_id))

    def model(self, name: str) -> Model | None:
        """A model as it was planned, by `MODEL:TASK`."""
        return self._models.get(name)

    @property
    def targets(self) -> dict[str, Target]:
        """The targets of the cells by their labels; also those that are the user's own."""
        return {cell.target.label: cell.target for cell in self._cells.values()}

    def source(self, name: str) -> Json:
        """Where a model comes from; empty if no plan was recorded."""
        model = self._models.get(name)
        told = to_json(model.source) if model else {}
        return {key: told[key] for key in ("kind", "ref", "revision", "file") if told.get(key)}

    def policy(self, cell: str) -> Json:
        """The effective policy of a cell; empty for exports and if no plan was recorded."""
        return to_json(self._cells[cell].policy) if cell in self._cells else {}


def compiled_plan(state: StateReader, sweep_id: int, *, emulated: bool = False) -> Plan | None:
    """All cells that are compiled from packages, each as last recorded; None: there are none.

    `emulated`: an emulator may compile from now on, as it may once it was allowed.
    """
    found = None
    for plan in recorded_plans(state, sweep_id):
        if models := _narrowed(plan.models, lambda cell: cell.origin is not None):
            before = found.models if found else ()
            found = replace(plan, models=_joined(before, models), notices=())
    if found is None or not (emulated or is_emulated(found)):
        return found
    changed = (replace(one, cells=tuple(map(_emulated, one.cells))) for one in found.models)
    return replace(found, models=tuple(changed))


def is_emulated(compiled: Plan) -> bool:
    """Whether an emulator may compile."""
    return any(
        cell.profile and compiling(cell.profile.label, emulated=True) in cell.needs
        for cell in compiled.cells()
    )


def settings_of(compiled: Plan, settings: Settings, info: SweepInfo) -> Settings:
    """The settings by which the cells of a sweep are compiled, where flags and variables of now
    win."""
    values = {**typed(info.settings)[0], "emulated": is_emulated(compiled), "stamp": info.stamp}
    return settings.replaced(values, f"sweep {info.stamp}")


def unpublished(
    state: StateReader, sweep_id: int, models: Iterable[PlannedModel], only: Sequence[str]
) -> tuple[PlannedModel, ...]:
    """The models with the cells that are not published; `only`: globs, none for all."""
    outcomes = state.outcomes(sweep_id, brief=True)
    done = {one.cell for one in outcomes if one.status in _PUBLISHED}
    return _narrowed(
        models, lambda cell: cell.id not in done and (not only or matches(cell.id, only))
    )


def merged(plan: Plan, models: tuple[PlannedModel, ...]) -> Plan:
    """A plan plus the cells compiled from packages that it does not contain itself."""
    planned = {cell.id for cell in plan.cells()}
    more = _narrowed(models, lambda cell: cell.id not in planned)
    return replace(plan, models=_joined(plan.models, more))


def _narrowed(
    models: Iterable[PlannedModel], wanted: Callable[[Cell], bool]
) -> tuple[PlannedModel, ...]:
    """The models with those of their cells that are wanted, without models that lose all."""
    found = (replace(model, cells=tuple(filter(wanted, model.cells))) for model in models)
    return tuple(model for model in found if model.cells)


def _emulated(cell: Cell) -> Cell:
    if cell.profile is None:
        return cell
    real, emulated = (compiling(cell.profile.label, emulated=one) for one in (False, True))
    return replace(cell, needs=tuple(emulated if word == real else word for word in cell.needs))


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
