"""The plan of a sweep as its state keeps it for reports and comparisons.

Those are made later, when the catalog may have changed, perhaps on another machine. So every run
records its plan: each policy once, and for each model the policies of its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flows.observe.estimates import Estimates
from flows.observe.work_left import ESTIMATE, from_record
from flows.observe.work_left import to_record as estimates_record
from matrix.cellid import parse
from matrix.codec import Table, from_json, to_json
from matrix.model import Plan, Source
from state.damage import Tolerated
from state.records import Kind

if TYPE_CHECKING:
    from state.reading import StateReader
    from state.state import State

PLAN = "plan"
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """A model as it was last planned; empty if no plan was recorded."""

    id: str
    task: str
    priority: str = ""
    group: str = ""
    model_type: str = ""
    source: Json = field(default_factory=dict)
    cells: Mapping[str, int] = field(default_factory=dict)
    """The right sides of its cell ids, each with the index of its policy."""


def note_plan(state: State, sweep_id: int, plan: Plan, known: Estimates | None = None) -> None:
    """Keep the plan of a run with its sweep, and its estimates."""
    data = {PLAN: to_record(plan)}
    if known is not None and known.models:
        data[ESTIMATE] = estimates_record(known)
    state.note(sweep_id, Kind.NOTICE, data)


def recorded_estimates(state: StateReader, sweep_id: int) -> Estimates | None:
    """The estimates of the last run of a sweep."""
    records = [data[ESTIMATE] for data in _notices(state, sweep_id) if ESTIMATE in data]
    with Tolerated("the estimates of the sweep"):
        return from_record(records[-1]) if records else None
    return None


def _notices(state: StateReader, sweep_id: int) -> Iterator[Json]:
    return (one.data for one in state.events(sweep_id, kind=Kind.NOTICE) if one.data)


def to_record(plan: Plan) -> dict[str, Any]:
    """The plan as it is recorded: most cells share policies, so each stands there once."""
    policies = Table()
    models = {
        one.name: Planned(
            id=one.model.id,
            task=one.model.task,
            priority=one.model.priority,
            group=one.model.group,
            model_type=one.model.model_type,
            source=_source(one.model.source),
            cells={cell.id.partition("@")[2]: policies.place(cell.policy) for cell in one.cells},
        )
        for one in plan.models
    }
    return {"engine": plan.engine, "policies": policies.rows, "models": to_json(models)}


def _source(source: Source) -> Json:
    told = {name: to_json(source)[name] for name in ("kind", "ref", "revision", "file")}
    return {name: value for name, value in told.items() if value}


class PlannedCells:
    """All plans recorded for a sweep; where they differ, the last one counts."""

    def __init__(self, records: list[Json]) -> None:
        self._policies: dict[str, Json] = {}
        self._models: dict[str, Planned] = {}
        for record in records:
            with Tolerated("a plan of the sweep"):
                self._read(record)

    def _read(self, record: Json) -> None:
        policies = [dict(policy) for policy in record["policies"]]
        for name, facts in record["models"].items():
            model = _model(name, facts)
            places = {f"{name}@{right}": policies[at] for right, at in model.cells.items()}
            self._models[name] = model
            self._policies |= places

    @classmethod
    def of(cls, state: StateReader, sweep_id: int) -> PlannedCells:
        """Read them from the events of a sweep."""
        return cls([data[PLAN] for data in _notices(state, sweep_id) if PLAN in data])

    def model(self, name: str) -> Planned:
        """What is known of a model, by `MODEL:TASK`."""
        known = self._models.get(name)
        return known or _model(name, {})

    def policy(self, cell: str) -> Json:
        """The effective policy of a cell; empty for exports and if none was recorded."""
        return self._policies.get(cell, {})


def _model(name: str, facts: Json) -> Planned:
    named = parse(f"{name}@any")
    return from_json({"id": named.model, "task": named.task, **facts}, Planned, exact=False)
