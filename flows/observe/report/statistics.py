"""The numbers of a report: totals, pass rates, the slowest models and the largest packages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from flows.observe.report.document import CellView, Json, Row
from flows.observe.summary import Summary
from matrix.model import is_export
from matrix.status import Status
from matrix.verification import RUNGS

MOST_RANKED = 12
_PASSED = {Status.PUBLISHED, Status.UNCHANGED, Status.VERIFIED}


def totals(cells: Sequence[CellView], models: int, summary: Summary) -> Json:
    """The numbers on top. Exports count as work and bytes, not as cells."""
    stages = [stage for cell in cells for stage in cell.stages]
    reused = [stage for stage in stages if stage.reused]
    return {
        "cells": sum(summary.counts.values()),
        "models": models,
        "counts": summary.counts,
        "failed": len(summary.failures),
        "failed_exports": summary.failed_exports,
        "open": summary.open,
        "bytes": sum(cell.bytes or 0 for cell in cells if cell.status == Status.PUBLISHED),
        "stage_runs": len(stages),
        "stages_reused": len(reused),
        "seconds_run": round(sum(stage.seconds for stage in stages if not stage.reused), 3),
        "seconds_saved": round(sum(stage.saved for stage in reused), 3),
        "bytes_saved": sum(stage.bytes for stage in reused),
    }


def slowest(cells: Sequence[CellView], rows: Sequence[Row]) -> list[Json]:
    """Models by the time that their stages took, reused ones left out."""
    seconds: defaultdict[int, float] = defaultdict(float)
    worst: dict[int, tuple[float, str]] = {}
    for cell in cells:
        took = sum(stage.seconds for stage in cell.stages if not stage.reused)
        seconds[cell.row] += took
        worst[cell.row] = max(worst.get(cell.row, (0.0, "")), (took, cell.id))
    return [
        {"name": rows[row].name, "value": round(took, 3), "cell": worst[row][1]}
        for row, took in sorted(seconds.items(), key=lambda item: -item[1])[:MOST_RANKED]
        if took > 0
    ]


def largest(cells: Sequence[CellView]) -> list[Json]:
    """Packages by their bytes."""
    known = sorted((cell for cell in cells if cell.bytes), key=lambda cell: -(cell.bytes or 0))
    return [{"name": one.id, "value": one.bytes, "cell": one.id} for one in known[:MOST_RANKED]]


def pass_rates(cells: Sequence[CellView], rows: Sequence[Row]) -> list[Json]:
    """By priority and column, and over all of either; exports do not count."""
    groups: defaultdict[tuple[str | None, int | None], list[CellView]] = defaultdict(list)
    for cell in cells:
        if is_export(cell.id) or not _ended(Status(cell.status)):
            continue
        for key in _groups_of(rows[cell.row].priority, cell.column):
            groups[key].append(cell)
    return [_rate(priority, column, group) for (priority, column), group in groups.items()]


def _groups_of(priority: str, column: int) -> Iterator[tuple[str | None, int | None]]:
    """None stands for all."""
    yield None, None
    yield None, column
    if priority:
        yield priority, None
        yield priority, column


def _ended(status: Status) -> bool:
    """Skipped and open cells have neither passed nor failed."""
    return status in _PASSED or status.failed


def _rate(priority: str | None, column: int | None, cells: Sequence[CellView]) -> Json:
    passed = [cell for cell in cells if cell.status in _PASSED]
    levels = [cell.level for cell in passed if cell.level]
    rate = {
        "priority": priority,
        "column": column,
        "passed": len(passed),
        "ended": len(cells),
        # What all cells that passed have reached.
        "level": min(levels, key=RUNGS.index, default=None),
    }
    return {name: value for name, value in rate.items() if value is not None}
