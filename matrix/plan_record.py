"""A whole plan as JSON values and back, so that any machine can work on it without the catalog.

`plan_to_json` is for people and tools to read; this record is complete. Targets and policies are
shared by most cells, so each stands in a table once, and a cell is a row of values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from matrix.codec import Table, from_json, to_json
from matrix.errors import MillError
from matrix.model import Cell, Model, Plan, PlannedModel, Policy, Target

FORMAT = 2
Json = Mapping[str, Any]


class BadRecord(MillError):
    """The record of a plan is of another modelmill, or damaged."""


@dataclass(frozen=True, slots=True)
class _Tables:
    targets: tuple[Target, ...]
    policies: tuple[Policy, ...]


def _fields(kind: type, without: Collection[str]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.name not in without)


_PLAN = _fields(Plan, {"models", "index_package", "index_version"})
_MODEL = _fields(PlannedModel, {"model", "cells"})
_CELL = _fields(Cell, {"model", "target", "policy"})


def plan_to_record(plan: Plan) -> dict[str, Any]:
    """Everything that `plan_from_record` needs to make an equal plan."""
    targets, policies = Table(), Table()
    models = [
        {
            "model": to_json(planned.model),
            **{name: getattr(planned, name) for name in _MODEL},
            "cells": [
                [targets.place(cell.target), policies.place(cell.policy)]
                + [to_json(getattr(cell, name)) for name in _CELL]
                for cell in planned.cells
            ],
        }
        for planned in plan.models
    ]
    return {
        "format": FORMAT,
        "index": [plan.index_package, plan.index_version],
        **{name: to_json(getattr(plan, name)) for name in _PLAN},
        "targets": targets.rows,
        "policies": policies.rows,
        "models": models,
    }


def plan_from_record(record: Json) -> Plan:
    """The plan of a record; raises `BadRecord` for anything else."""
    if record.get("format") != FORMAT:
        raise BadRecord(
            f"the plan's record has format {record.get('format')!r}, this modelmill reads {FORMAT}",
            hint="use the same modelmill on every machine of a fleet",
        )
    try:
        return _plan(record)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadRecord(f"the record of the plan is damaged: {error}") from error


def _plan(record: Json) -> Plan:
    values = dict(record)
    del values["format"]
    tables = from_json({name: values.pop(name) for name in ("targets", "policies")}, _Tables)
    values["index_package"], values["index_version"] = values.pop("index")
    values["models"] = [_planned(one, tables) for one in record["models"]]
    return from_json(values, Plan)


def _planned(one: Json, tables: _Tables) -> PlannedModel:
    model = from_json(one["model"], Model)
    cells = [
        from_json(
            {
                "model": model,
                "target": tables.targets[target],
                "policy": tables.policies[policy],
                # A row of an older modelmill is shorter: what was added since has its default.
                **dict(zip(_CELL, rest, strict=len(rest) > len(_CELL))),
            },
            Cell,
            exact=False,
        )
        for target, policy, *rest in one["cells"]
    ]
    return from_json({**one, "model": model, "cells": cells}, PlannedModel)
