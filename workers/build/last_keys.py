"""The stage keys that a cell had when it was last built, and before: what `explain` compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.build.graph import Walked
from workers.store.notes import Notes

KIND = "keys"


def note_keys(notes: Notes, cell_id: str, walked: Walked) -> None:
    """Remember the keys of a build; the ones before stay, unless nothing has changed."""
    now = {
        f"{task.spec.name}:{task.component}": {"key": task.key.key, "parts": task.key.parts}
        for task, _action in walked.tasks
    }
    last = last_keys(notes, cell_id)
    if last.get("now") != now:
        notes.write(KIND, cell_id, {"now": now, "before": last.get("now")})


def last_keys(notes: Notes, cell_id: str) -> Mapping[str, Any]:
    """`now` and `before`, as far as they are known."""
    return notes.read(KIND, cell_id) or {}
