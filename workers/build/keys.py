"""Why each stage of a cell would run or be reused: by the parts of its key, now and before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workers.build.graph import StageTask
from workers.store.actions import Action
from workers.store.folder import Notes

ABSENT = "(nothing)"
NOTE = "keys"


def diff_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between the parts of two keys, one line for each value."""
    return [f"{_told(name)}: {was} -> {now}" for name, was, now in differences(old, new)]


def _told(name: str) -> str:
    """What differs, by its path; the digests of an engine's code say nothing by themselves."""
    head, _, stage = name.partition("tools.engine.")
    return name if head else f"the engine's code for {stage} has changed"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Every value that differs, by its path, as it was and as it is."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name, shown(before.get(name)), shown(after.get(name))


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", item


def shown(value: Any) -> str:
    """A value in a line; of a digest its beginning."""
    if value is None:
        return ABSENT
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or ABSENT
    text = str(value)
    is_digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return text[:12] if is_digest else text


def note_keys(notes: Notes, cell_id: str, now: Mapping[str, Any]) -> None:
    """Remember the keys of a build for `explain`; the ones before stay unless nothing changed."""
    last = last_keys(notes, cell_id)
    if last.get("now") != now:
        notes.write(NOTE, cell_id, {"now": now, "before": last.get("now")})


def last_keys(notes: Notes, cell_id: str) -> Mapping[str, Any]:
    """The keys that a cell had when it was last built (`now`) and before that (`before`)."""
    return notes.read(NOTE, cell_id) or {}


@dataclass(frozen=True, slots=True)
class Reason:
    """One stage run of a cell, explained."""

    stage: str
    component: str
    key: str
    reused: bool
    """Whether the store has its outputs."""
    lines: tuple[str, ...]


def explain(
    runs: Iterable[tuple[StageTask, Action | None]], note: Mapping[str, Any]
) -> list[Reason]:
    """Of each of these runs (`Builder.keys`), by the keys that are noted of its cell."""
    last, before = note.get("now") or {}, note.get("before") or {}
    reasons = []
    for task, action in runs:
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
