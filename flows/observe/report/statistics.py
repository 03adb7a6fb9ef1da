"""The numbers of a report: totals, pass rates, the slowest models and the largest packages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any

from flows.observe.report.grid import known
from flows.observe.summary import Summary
from matrix.model import is_export
from matrix.status import Status
from matrix.verification import RUNGS

MOST_RANKED = 12
_PASSED = {Status.PUBLISHED, Status.UNCHANGED, Status.VERIFIED}
Json = dict[str, Any]


def totals(cells: Sequence[Json], models: int, summary: Summary) -> Json:
    """The numbers on top. Exports count as work and bytes, not as cells."""
    stages = [stage for cell in cells for stage in cell.get("stages", ())]
    reused = [stage for stage in stages if stage["reused"]]
    published = [cell for cell in cells if cell["status"] == Status.PUBLISHED]
    return {
        "cells": sum(summary.counts.values()),
        "models": models,
        "counts": summary.counts,
        "failed": len(summary.failures),
        "failed_exports": summary.failed_exports,
        "open": summary.open,
        "bytes": sum(cell.get("bytes", 0) for cell in published),
        "stage_runs": len(stages),
        "stages_reused": len(reused),
        "seconds_run": round(sum(one["seconds"] for one in stages if not one["reused"]), 3),
        "seconds_saved": round(sum(one["saved"] for one in reused), 3),
        "bytes_saved": sum(one["bytes"] for one in reused),
    }


def slowest(cells: Sequence[Json], rows: Sequence[Json]) -> list[Json]:
    """Models by the time that their stages took, reused ones left out."""
    seconds: defaultdict[int, float] = defaultdict(float)
    worst: dict[int, tuple[float, str]] = {}
    for cell in cells:
        took = sum(one["seconds"] for one in cell.get("stages", ()) if not one["reused"])
        seconds[cell["row"]] += took
        worst[cell["row"]] = max(worst.get(cell["row"], (0.0, "")), (took, cell["id"]))
    return [
        {"name": rows[row]["name"], "value": round(took, 3), "cell": worst[row][1]}
        for row, took in sorted(seconds.items(), key=lambda item: -item[1])[:MOST_RANKED]
        if took > 0
    ]


def largest(cells: Sequence[Json]) -> list[Json]:
    """Packages by their bytes."""
    sized = sorted(((-one.get("bytes", 0), one["id"]) for one in cells), key=lambda pair: pair[0])
    ranked = [(-size, name) for size, name in sized[:MOST_RANKED] if size]
    return [{"name": name, "value": size, "cell": name} for size, name in ranked]


def pass_rates(cells: Sequence[Json], rows: Sequence[Json]) -> list[Json]:
    """By priority and column, and over all of either; exports do not count, and skipped and open
    cells have neither passed nor failed."""
    groups: defaultdict[tuple[str | None, int | None], list[Json]] = defaultdict(list)
    for cell in cells:
        status = Status(cell["status"])
        if not is_export(cell["id"]) and (status in _PASSED or status.failed):
            priority = rows[cell["row"]].get("priority")
            # None stands for all.
            for key in product(dict.fromkeys((None, priority)), (None, cell["column"])):
                groups[key].append(cell)
    return [_rate(priority, column, group) for (priority, column), group in groups.items()]


def _rate(priority: str | None, column: int | None, cells: Sequence[Json]) -> Json:
    passed = [cell for cell in cells if cell["status"] in _PASSED]
    levels = [cell["level"] for cell in passed if "level" in cell]
    return known(
        priority=priority,
        column=column,
        passed=len(passed),
        ended=len(cells),
        # What all cells that passed have reached.
        level=min(levels, key=RUNGS.index, default=None),
    )
