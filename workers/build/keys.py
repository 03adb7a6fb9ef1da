"""Stage keys: the digest of everything that can change a byte of a stage's outputs.

Their parts tell why a stage would run or be reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workers.engine import StageSpec
from workers.store.folder import Notes

ABSENT = "(nothing)"
NOTE = "keys"


def key_parts(
    engine: str,
    tools: Mapping[str, str],
    spec: StageSpec,
    component: str,
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    """What the key of one stage run is made of; `inputs` are tree digests (the source: its own
    digest)."""
    return {
        "engine": engine,
        "tools": {name: tools[name] for name in sorted(spec.tools)},
        "stage": spec.name,
        "component": component,
        "params": dict(spec.params),
        "inputs": dict(sorted(inputs.items())),
    }


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
