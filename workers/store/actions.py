"""Action records: what a stage with this key made, what it took, and which of them go first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.codec import from_json
from matrix.digest import SHA256, FileEntry, files_digest
from matrix.entry import leads_out
from workers.store.blobs import Blobs
from workers.store.folder import Records


@dataclass(frozen=True, slots=True)
class Action:
    """A stage that has run: never recorded unless all its bytes are in the store."""

    key: str
    parts: Mapping[str, Any]
    """What the key was made of; `explain` compares them."""
    files: tuple[FileEntry, ...]
    facts: Mapping[str, Any]
    info: Mapping[str, Any]
    seconds: float
    peak_memory: int
    subject: str = ""
    """The model and stage it was first run for, for people."""

    @property
    def tree(self) -> str:
        """Identity of the outputs."""
        return files_digest(self.files)

    @property
    def size(self) -> int:
        """Bytes of the outputs."""
        return sum(file.size for file in self.files)


class Actions(Records):
    """The records of stages that have run, by key."""

    def path(self, name: str) -> Path:
        """Where the record of a key is."""
        return self.root / name[:2] / f"{name}.json"

    def read(self, name: str) -> Action | None:
        """A record; None if there is none that can be understood."""
        value = super().read(name)
        try:
            found = from_json(value, Action) if value is not None else None
        except (ValueError, KeyError, TypeError):
            return None
        # What it names is placed and removed: nothing outside of the store and of a package.
        return found if found is None or all(map(_is_inside, found.files)) else None

    def touch(self, key: str) -> None:
        """Note a use."""
        with suppress(OSError):
            os.utime(self.path(key))

    def all(self) -> Iterator[tuple[float, str]]:
        """Every record's (last use, key)."""
        for path in self.root.glob("*/*.json"):
            with suppress(FileNotFoundError):
                yield path.lstat().st_mtime, path.stem


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a collection did."""

    evicted: tuple[Action, ...]
    """They are forgotten, and can be run again from their inputs."""
    freed: int
    kept: int
    pinned: int
    """Actions that were to go but are in use."""


def collect(
    blobs: Blobs, actions: Actions, horizon: float, budget: float, unused_since: float = 0.0
) -> GcReport:
    """Bring the store down to `budget` bytes, sparing what was used since `horizon`; what was not
    used since `unused_since` goes in any case.

    Call it under the gate.
    """
    records, recent = [], set()
    for used, key in sorted(actions.all()):
        record = actions.read(key)
        if record is None:
            actions.remove(key)
            continue
        records.append((used, record))
        if used >= horizon:
            recent.add(key)
    sizes = dict(blobs.all())
    uses = Counter(sha for _used, record in records for sha in _named(record))
    freed = sum(blobs.remove(sha) for sha in sizes if sha not in uses)
    total = sum(size for sha, size in sizes.items() if sha in uses)
    evicted, in_use = [], 0
    for used, record in records:
        if total <= budget and used >= unused_since:
            break
        if record.key in recent:
            in_use += 1
            continue
        actions.remove(record.key)  # the record first: what it names is free to go only then
        for sha in _named(record):
            uses[sha] -= 1
            if not uses[sha]:
                removed = blobs.remove(sha)
                freed += removed
                total -= removed
        evicted.append(record)
    return GcReport(tuple(evicted), freed, total, in_use)


def _is_inside(file: FileEntry) -> bool:
    return bool(SHA256.fullmatch(file.sha256)) and not leads_out(file.path)


def _named(record: Action) -> set[str]:
    return {file.sha256 for file in record.files}
