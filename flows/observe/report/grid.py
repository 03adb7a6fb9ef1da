"""The grid of a report: models down, targets across."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flows.observe.masking import masked_json
from flows.observe.report.document import Column, Row
from flows.sweep.recorded import PlannedCells
from matrix.cellid import parse
from matrix.model import EXPORT
from matrix.targets import load_targets
from state.records import Outcome, StageRun


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows and columns: the export first, then the targets in their usual order."""

    columns: list[Column]
    rows: list[Row]
    _column: Mapping[str, int]
    _row: Mapping[str, int]

    @classmethod
    def of(cls, outcomes: list[Outcome], planned: PlannedCells) -> Grid:
        """The grid of these outcomes."""
        table = {row.label: row for row in load_targets().rows}
        order = [EXPORT, *table]
        labels = {_label(one.cell) for one in outcomes}

        def rank(label: str) -> tuple[int, str]:
            target = label.partition(":")[0]
            return (order.index(target) if target in order else len(order), label)

        columns = []
        for label in sorted(labels, key=rank):
            row = table.get(label.partition(":")[0])
            columns.append(Column(label, row.ep if row else "", row.device if row else ""))
        names = list(dict.fromkeys(one.model for one in outcomes))
        return cls(
            columns,
            [_row(name, planned) for name in names],
            {column.label: place for place, column in enumerate(columns)},
            {name: place for place, name in enumerate(names)},
        )

    def place(self, one: Outcome) -> tuple[int, int]:
        """Row and column of a cell."""
        return self._row[one.model], self._column[_label(one.cell)]


def with_content(
    rows: Iterable[Row], runs: Iterable[StageRun], parts: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """The rows with the source that went into their stage keys; `parts` by key."""
    found: dict[str, dict[str, str]] = {}
    for run in runs:
        known = parts.get(run.key, {})
        told = {
            "digest": known.get("inputs", {}).get("source"),
            "commit": known.get("params", {}).get("commit"),
        }
        of_model = found.setdefault(run.model, {})
        of_model |= {name: str(value) for name, value in told.items() if value}
    return [replace(row, content=found.get(row.name, {})) for row in rows]


def _label(cell: str) -> str:
    return cell.rpartition("@")[2]


def _row(name: str, planned: PlannedCells) -> Row:
    named, known = parse(f"{name}@any"), planned.model(name)
    return Row(
        name=name,
        id=named.model,
        task=named.task,
        priority=known.priority if known else "",
        group=known.group if known else "",
        type=known.model_type if known else "",
        source=masked_json(dict(planned.source(name))),
    )
