"""Why each stage of a cell would run or be reused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matrix.model import Cell
from workers.build.builder import Builder
from workers.build.graph import StageTask
from workers.build.keys import diff_keys, last_keys


@dataclass(frozen=True, slots=True)
class Reason:
    """One stage run of a cell, explained."""

    stage: str
    component: str
    key: str
    reused: bool
    """Whether the store has its outputs."""
    lines: tuple[str, ...]


def explain(builder: Builder, cell: Cell) -> list[Reason]:
    """Every stage run with a known key: what follows a missing stage has none yet."""
    note = last_keys(builder.store.notes, cell.id)
    last, before = note.get("now") or {}, note.get("before") or {}
    reasons = []
    for task, action in builder.keys(cell):
        name = f"{task.spec.name}:{task.component}"
        lines = _compare(task, last.get(name), before.get(name), present=action is not None)
        if action is not None and not (name in last and last[name]["key"] == task.key):
            lines.append(f"found in the store: made for {action.subject}")
        reasons.append(
            Reason(task.spec.name, task.component, task.key, action is not None, tuple(lines))
        )
    return reasons


def _compare(
    now: StageTask,
    last: Mapping[str, Any] | None,
    before: Mapping[str, Any] | None,
    *,
    present: bool,
) -> list[str]:
    if last is None:
        return ["this cell was never built with this store"]
    if last["key"] != now.key:
        return diff_keys(last["parts"], now.parts)
    if not present:
        return ["the key is the same, but its outputs are no longer in the store"]
    lines = ["the key is the same as last time"]
    if before is not None and before["key"] != last["key"]:
        changed = diff_keys(before["parts"], last["parts"])
        lines += [f"the last change was {line}" for line in changed]
    return lines
