"""What is known about models before anything is built: verdicts, effort, counts.

A good verdict is necessary but not sufficient: only a build proves that the tables are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flows.plan.configs import config_of
from matrix.abilities import abilities_of
from matrix.coverage import BUILDABLE, Coverage, Verdict, cover, proven
from matrix.findings import Finding
from matrix.globs import matches
from matrix.model import Model

BUILT = (Verdict.BUILDS, Verdict.BUILDS_AS)


class Effort(StrEnum):
    """The tiers, lowest first."""

    ENTRY = "entry"
    """A catalog entry is enough, and the family has been onboarded before."""
    FIRST_ENTRY = "first entry"
    """A catalog entry is enough; its family is new, so it owes a finding."""
    TASK = "exporter for a task"
    """The architecture is exported for other tasks."""
    EXPORTER = "exporter"
    """Nothing exports the architecture."""
    MORE = "more than an exporter"
    """The model or its task has no ONNX form here, or needs code of its repository."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What is known of one model without a build."""

    coverage: Coverage
    effort: Effort
    why: str
    findings: tuple[str, ...] = ()
    """Of the family, to be read first."""
    doubt: str = ""
    """Why the task may be the wrong one."""


def probe(engine: str, model: Model, known: Iterable[Finding]) -> Probe:
    """Look a model up; its family's findings are among the known ones."""
    config = config_of(model)
    found = cover(model, engine, config)
    families = (one for one in known if one.kind == "family")
    near = (one for one in families if matches(found.architecture, one.scope.architectures))
    family = tuple(one.id for one in near)
    effort = effort_of(engine, found, family)
    names = (config or model.source.config).get("architectures")
    return Probe(found, effort, _why(found), family, _doubt(model.task, names))


def lacking_lines(found: Probe) -> list[str]:
    """What keeps a model from being built, as far as tables know, and what to do about it."""
    if found.coverage.verdict in BUILDABLE:
        return []
    hint = f" ({found.coverage.hint})" if found.coverage.hint else ""
    return [f"coverage {found.why}{hint}"]


def effort_of(engine: str, found: Coverage, family: tuple[str, ...]) -> Effort:
    """What a model takes, by its coverage and the findings of its family."""
    if found.verdict in {Verdict.IMPOSSIBLE, Verdict.CODE}:
        return Effort.MORE
    if found.verdict is Verdict.EXPORTER:
        abilities = abilities_of(engine)
        listed = abilities is not None and found.architecture in abilities.architectures
        return Effort.TASK if listed else Effort.EXPORTER
    return Effort.ENTRY if family else Effort.FIRST_ENTRY


def _why(found: Coverage) -> str:
    near = f"; the nearest that builds is {found.nearest}" if found.nearest else ""
    if found.why:
        return f"{found.verdict}: {found.why}{near}"
    return f"{found.verdict}: {found.architecture} is exported for {found.task}"


def _doubt(task: str, names: object) -> str:
    """A class that generates is listed under fill-mask by tables of names."""
    for name in names if isinstance(names, list | tuple) else ():
        if task == "fill-mask" and str(name).endswith("ForConditionalGeneration"):
            return f"{name} generates text: fill-mask may be the wrong task"
    return ""


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with the verdict on it."""

    model: Model
    coverage: Coverage


def judged(models: Iterable[Model], engine: str) -> list[Row]:
    """The verdict on every entry."""
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


def row_json(row: Row, engine: str) -> dict[str, Any]:
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
        "tiny_model": proven(found.architecture, found.task, engine),
    }
