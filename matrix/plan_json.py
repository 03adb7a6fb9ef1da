"""A plan as JSON: one form for people and tools to read, and a complete record that makes it again.

With the record, any machine can work on a plan without the catalog. Targets and policies are shared
by most cells, so each stands in a table once, and so does the model of its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from matrix.cellid import cell_id, model_fault, parse
from matrix.codec import from_json, to_json
from matrix.digest import SHA256
from matrix.entry import leads_out
from matrix.errors import MillError, UsageError
from matrix.model import Cell, Model, Plan, PlannedModel, Policy, Target
from matrix.naming import Limits
from matrix.nearest import quote
from matrix.plan import name_problems
from matrix.slugs import slug

FORMAT = 3
Json = Mapping[str, Any]


class BadRecord(MillError):
    """The record of a plan is of another modelmill, or damaged."""


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Everything that `plan --json` prints, cell by cell."""
    return {
        "stamp": plan.stamp,
        "engine": plan.engine,
        "self_contained": plan.self_contained,
        "index": {"package": plan.index_package, "version": plan.index_version},
        "exports": [
            {
                "id": export.id,
                "model": model.model.id,
                "task": model.model.task,
                "package": export.package,
                "version": export.version,
            }
            for model in plan.models
            for export in model.exports
        ],
        "cells": [cell_to_json(cell) for cell in plan.cells()],
        "notices": list(plan.notices),
    }


def cell_to_json(cell: Cell) -> dict[str, Any]:
    """One cell with its effective policy."""
    policy = to_json(cell.policy)
    return {
        "id": cell.id,
        "model": cell.model.id,
        "task": cell.model.task,
        "exported_as": cell.model.exported_as or None,
        "model_type": cell.model.model_type,
        "group": cell.model.group,
        "priority": cell.model.priority,
        "target": cell.target.label,
        "ep": cell.target.ep,
        "device": cell.target.device,
        "provider": cell.target.provider,
        "profile": cell.profile.label if cell.profile else None,
        "precision_default": policy.pop("default"),
        "precision_asked": policy.pop("asked"),
        **policy,
        "package": cell.package,
        "version": cell.version,
        "timeout": cell.timeout,
        "publish_timeout": cell.publish_timeout,
        "skip": cell.skip,
        "needs": list(cell.needs),
    }


def plan_to_record(plan: Plan) -> dict[str, Any]:
    """Everything that `plan_from_record` needs to make an equal plan."""
    tables: dict[str, list[Any]] = {"target": [], "policy": []}
    places: dict[str, int] = {}
    record = to_json(plan)
    for planned in record["models"]:
        planned["cells"] = [_row(cell, tables, places) for cell in planned["cells"]]
    return {"format": FORMAT, "tables": tables, "plan": record}


def _row(cell: Json, tables: Mapping[str, list[Any]], places: dict[str, int]) -> dict[str, Any]:
    """A cell without its model and what is empty, with the places of its target and policy."""
    row = {name: value for name, value in cell.items() if value not in (None, [], ())}
    del row["model"]
    for name, rows in tables.items():
        row[name] = places.setdefault(f"{name} {row[name]!r}", len(rows))
        if row[name] == len(rows):
            rows.append(cell[name])
    return row


@dataclass(frozen=True, slots=True)
class _Tables:
    target: tuple[Target, ...]
    policy: tuple[Policy, ...]


def plan_from_record(record: Any, limits: Limits) -> Plan:
    """The plan of a record; raises `BadRecord` for anything else.

    A record comes from a state that others can write. Its names become folders and file names, so
    they are checked like those of a catalog: `limits` are those of feeds.
    """
    known = record.get("format") if isinstance(record, Mapping) else None
    if known != FORMAT:
        raise BadRecord(
            f"the plan's record has format {known!r}, this modelmill reads {FORMAT}",
            hint="use the same modelmill on every machine of a fleet",
        )
    try:
        tables = from_json(record["tables"], _Tables)
        data = dict(record["plan"])
        models = [_model(one, tables) for one in data["models"]]
        plan = from_json({**data, "models": models}, Plan)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadRecord(f"the record of the plan is damaged: {error}") from error
    if fault := next(_faults(plan, limits), ""):
        raise BadRecord(f"the record of the plan is damaged: {fault}")
    return plan


def _faults(plan: Plan, limits: Limits) -> Iterator[str]:
    """What no plan of a catalog has."""
    if plan.stamp != slug(plan.stamp):
        yield f"{quote(plan.stamp)} is not a stamp"
    for planned in plan.models:
        model, source = planned.model, planned.model.source
        for name in (model.id, *filter(None, [model.context_group])):
            yield from filter(None, [model_fault(name)])
        if source.file is not None and leads_out(source.file):
            yield f"{quote(source.file)} leads out of its source"
        for cell in (one for each in planned.cells for one in (each, *each.members)):
            yield from _cell_faults(cell)
    yield from (problem.message for problem in name_problems(plan, limits))


def _cell_faults(cell: Cell) -> Iterator[str]:
    shown = cell.policy.shown
    profile = cell.profile.label if cell.profile else None
    named = cell_id(cell.model.id, cell.model.task, cell.target.label, shown, profile)
    try:
        parse(cell.id)
    except UsageError as error:
        yield error.message
    if cell.id != named:
        yield f"{quote(cell.id)} is not the id of {named}"
    if cell.origin is not None and not SHA256.fullmatch(cell.origin.tree):
        yield f"{quote(cell.origin.tree)} is not a digest"


def _model(record: Json, tables: _Tables) -> PlannedModel:
    model = from_json(record["model"], Model)
    cells = [
        from_json(
            {
                **cell,
                "model": model,
                "target": tables.target[cell["target"]],
                "policy": tables.policy[cell["policy"]],
            },
            Cell,
        )
        for cell in record["cells"]
    ]
    return from_json({**record, "model": model, "cells": cells}, PlannedModel)
