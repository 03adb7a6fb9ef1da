"""A whole plan as JSON values and back, so that any machine can work on it without the catalog.

`plan_to_json` is for people and tools to read; this record is complete. Targets and policies are
shared by most cells, so each is told once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from matrix.errors import MillError
from matrix.model import (
    Cell,
    Model,
    Overrides,
    Plan,
    PlannedModel,
    Policy,
    Source,
    SourceKind,
    Target,
)

FORMAT = 2
Json = Mapping[str, Any]
T = TypeVar("T")
_CELL = ("id", "package", "version", "timeout", "publish_timeout", "skip")


class BadRecord(MillError):
    """The record of a plan is of another modelmill, or damaged."""


class _Table:
    """Values that many cells share, each once."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}

    def place(self, value: Target | Policy) -> int:
        """Where the value stands; it is added at first sight."""
        spelled = repr(value)  # holds dicts, so it cannot be a key itself
        if spelled not in self._places:
            self._places[spelled] = len(self.rows)
            self.rows.append(asdict(value))
        return self._places[spelled]


def plan_to_record(plan: Plan) -> dict[str, Any]:
    """Everything that `plan_from_record` needs to make an equal plan."""
    targets, policies = _Table(), _Table()
    models = [
        {
            "model": asdict(planned.model),
            "export_package": planned.export_package,
            "export_version": planned.export_version,
            "cells": [
                [targets.place(cell.target), policies.place(cell.policy)]
                + [getattr(cell, name) for name in _CELL]
                for cell in planned.cells
            ],
        }
        for planned in plan.models
    ]
    return {
        "format": FORMAT,
        "stamp": plan.stamp,
        "index": [plan.index_package, plan.index_version],
        "engine": plan.engine,
        "self_contained": plan.self_contained,
        "notices": list(plan.notices),
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
        raise BadRecord(f"the record of the plan is damaged: {error!r}") from error


def _plan(record: Json) -> Plan:
    targets = [_made(Target, row) for row in record["targets"]]
    policies = [_made(Policy, row) for row in record["policies"]]
    package, version = record["index"]
    return Plan(
        stamp=record["stamp"],
        models=tuple(_planned(one, targets, policies) for one in record["models"]),
        index_package=package,
        index_version=version,
        engine=record["engine"],
        self_contained=record["self_contained"],
        notices=tuple(record["notices"]),
    )


def _planned(one: Json, targets: Sequence[Target], policies: Sequence[Policy]) -> PlannedModel:
    model = _model(one["model"])
    cells = tuple(
        Cell(
            model=model,
            target=targets[target],
            policy=policies[policy],
            **dict(zip(_CELL, rest, strict=True)),
        )
        for target, policy, *rest in one["cells"]
    )
    return PlannedModel(model, cells, one["export_package"], one["export_version"])


def _model(row: Json) -> Model:
    source = row["source"]
    return _made(
        Model,
        {
            **row,
            "source": _made(Source, {**source, "kind": SourceKind(source["kind"])}),
            "overrides": _made(Overrides, row["overrides"]),
            "per_target": {
                label: _made(Overrides, one) for label, one in row["per_target"].items()
            },
        },
    )


def _made(kind: type[T], row: Json) -> T:
    """A frozen dataclass of JSON values: what JSON made a list was a tuple."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # all are dataclasses
    if row.keys() != known:
        raise ValueError(f"{kind.__name__} with {', '.join(sorted(row.keys() ^ known))}")
    return kind(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    )
