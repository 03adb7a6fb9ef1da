"""The grid of a report, models down and targets across, and the numbers that are made from it:
totals, pass rates, the slowest models and the largest packages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, product
from typing import Any

from flows.observe.summary import Summary
from flows.observe.sweep_data import SweepData
from flows.output.masking import masked_json
from flows.plan.recorded import PlannedCells
from matrix.cellid import parse
from matrix.model import EXPORT, is_export
from matrix.status import Status
from matrix.targets import load_targets
from matrix.verification import RUNGS
from state.records import Outcome

MOST_RANKED = 12
_PASSED = {Status.PUBLISHED, Status.UNCHANGED, Status.VERIFIED}
Json = dict[str, Any]


def known(**values: Any) -> Json:
    """A part of the document, without what is unknown or empty."""
    return {name: value for name, value in values.items() if value or value in (0, False)}


class Grid:
    """Rows and columns: the export first, then the targets in their usual order."""

    def __init__(self, data: SweepData) -> None:
        table = {row.label: row for row in load_targets().every} | data.planned.targets
        order = [EXPORT, *table]

        def rank(label: str) -> tuple[int, str]:
            target = label.partition(":")[0]
            return (order.index(target) if target in order else len(order), label)

        self.columns: list[Json] = []
        for label in sorted(set(map(_label, data.outcomes)), key=rank):
            row = table.get(label.partition(":")[0])
            ep, device = (row.ep, row.device) if row else ("", "")
            self.columns.append(known(label=label, ep=ep, device=device))
        names = list(dict.fromkeys(one.model for one in data.outcomes.values()))
        content = _content(data)
        self.rows = [_row(name, data.planned, content.get(name, {})) for name in names]
        self._column = {column["label"]: place for place, column in enumerate(self.columns)}
        self._row = {name: place for place, name in enumerate(names)}

    def place(self, one: Outcome) -> tuple[int, int]:
        """Row and column of a cell."""
        return self._row[one.model], self._column[_label(one.cell)]


def _content(data: SweepData) -> dict[str, dict[str, str]]:
    """Digest and commit of the source that was read, by model; empty if nothing was built."""
    found: dict[str, dict[str, str]] = {}
    for run in chain.from_iterable(data.runs.values()):
        part, of_model = data.parts.get(run.key, {}), found.setdefault(run.model, {})
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
    # On what they were verified, and on which kind of samples.
    evidence = passed if priority is None else []
    return known(
        priority=priority,
        column=column,
        passed=len(passed),
        ended=len(cells),
        # What all cells that passed have reached.
        level=min(levels, key=RUNGS.index, default=None),
        where=dict(Counter(one["run_on"]["where"] for one in evidence if "run_on" in one)),
        samples=dict(Counter(one["proof"]["samples"] for one in evidence if "proof" in one)),
    )
