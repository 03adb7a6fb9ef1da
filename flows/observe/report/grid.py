"""The grid of a report: models down, targets across."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flows.observe.masking import masked_json
from flows.sweep.recorded import PlannedCells
from matrix.cellid import parse
from matrix.model import EXPORT
from matrix.targets import load_targets
from state.records import Outcome, StageRun

Json = dict[str, Any]


def known(**values: Any) -> Json:
    """A part of the document, without what is unknown or empty."""
    return {name: value for name, value in values.items() if value or value in (0, False)}


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows and columns: the export first, then the targets in their usual order."""

    columns: list[Json]
    rows: list[Json]
    _column: Mapping[str, int]
    _row: Mapping[str, int]

    @classmethod
    def of(
        cls,
        outcomes: list[Outcome],
        planned: PlannedCells,
        runs: Iterable[StageRun],
        parts: Mapping[str, Mapping[str, Any]],
    ) -> Grid:
        """The grid of these outcomes; `parts`: of the stage keys, by key."""
        table = {row.label: row for row in load_targets().rows}
        order = [EXPORT, *table]
        labels = {_label(one.cell) for one in outcomes}

        def rank(label: str) -> tuple[int, str]:
            target = label.partition(":")[0]
            return (order.index(target) if target in order else len(order), label)

        columns = []
        for label in sorted(labels, key=rank):
            row = table.get(label.partition(":")[0])
            ep, device = (row.ep, row.device) if row else ("", "")
            columns.append(known(label=label, ep=ep, device=device))
        names = list(dict.fromkeys(one.model for one in outcomes))
        content = _content(runs, parts)
        return cls(
            columns,
            [_row(name, planned, content.get(name, {})) for name in names],
            {column["label"]: place for place, column in enumerate(columns)},
            {name: place for place, name in enumerate(names)},
        )

    def place(self, one: Outcome) -> tuple[int, int]:
        """Row and column of a cell."""
        return self._row[one.model], self._column[_label(one.cell)]


def _content(
    runs: Iterable[StageRun], parts: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, str]]:
    """Digest and commit of the source that was read, by model; empty if nothing was built."""
    found: dict[str, dict[str, str]] = {}
    for run in runs:
        part, of_model = parts.get(run.key, {}), found.setdefault(run.model, {})
        if digest := part.get("inputs", {}).get("source"):
            of_model["digest"] = str(digest)
        if commit := part.get("params", {}).get("commit"):
            of_model["commit"] = str(commit)
    return found


def _label(cell: str) -> str:
    return cell.rpartition("@")[2]


def _row(name: str, planned: PlannedCells, content: Mapping[str, str]) -> Json:
    named, model = parse(f"{name}@any"), planned.model(name)
    return known(
        name=name,
        id=named.model,
        task=named.task,
        priority=model and model.priority,
        group=model and model.group,
        type=model and model.model_type,
        source=masked_json(dict(planned.source(name))),
        content=content,
    )
