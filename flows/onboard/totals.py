"""The verdicts on a whole catalog, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.onboard.configs import config_of
from matrix.coverage import Coverage, Verdict, cover
from matrix.model import Model

BUILT = (Verdict.BUILDS, Verdict.BUILDS_AS)


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with what can be said of it."""

    model: Model
    coverage: Coverage


def judged(models: Iterable[Model], engine: str) -> list[Row]:
    """What can be said of every entry."""
    return [Row(model, cover(model, engine, config_of(model))) for model in models]


def by_verdict(rows: Iterable[Row]) -> dict[str, int]:
    """How many entries have each verdict, in the order of the verdicts."""
    counts = Counter(row.coverage.verdict for row in rows)
    return {verdict.value: counts[verdict] for verdict in Verdict if counts[verdict]}


def totals(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, int]]]:
    """The same by task, family and priority."""
    return {
        "task": _grouped(rows, lambda row: row.model.task),
        "family": _grouped(rows, lambda row: row.coverage.architecture or "unknown"),
        "priority": _grouped(rows, lambda row: row.model.priority),
    }


def _grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, dict[str, int]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: by_verdict(group) for name, group in sorted(groups.items())}


def built(counts: Mapping[str, int]) -> int:
    """How many of them build as they are or as another task."""
    return sum(counts.get(verdict, 0) for verdict in BUILT)


def row_json(row: Row) -> dict[str, Any]:
    """An entry for machines."""
    found = row.coverage
    return {
        "model": row.model.id,
        "task": row.model.task,
        "priority": row.model.priority,
        "group": row.model.group,
        "architecture": found.architecture,
        "verdict": found.verdict.value,
        "exported_as": found.task,
        "why": found.why,
        "hint": found.hint,
        "extra": found.extra,
        "nearest": found.nearest,
    }
