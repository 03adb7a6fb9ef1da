"""Action records: what a stage with this key made, and what it took."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from matrix.codec import from_json
from matrix.digest import FileEntry, files_digest
from workers.store.records import Records


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


class Actions:
    """The records of stages that have run."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def read(self, key: str) -> Action | None:
        """A record; one that cannot be understood is no record."""
        value = self._records.read(_name(key))
        try:
            return from_json(value, Action) if value is not None else None
        except (ValueError, KeyError, TypeError):
            return None

    def touch(self, key: str) -> None:
        """Note a use."""
        with suppress(OSError):
            os.utime(self._records.root / _name(key))

    def write(self, action: Action) -> None:
        """Record a run; its bytes must be in place."""
        self._records.write(_name(action.key), asdict(action))

    def remove(self, key: str) -> None:
        """Forget a run."""
        self._records.remove(_name(key))

    def all(self) -> Iterator[tuple[float, str]]:
        """Every record's (last use, key)."""
        for path in self._records.root.glob("*/*.json"):
            with suppress(FileNotFoundError):
                yield path.stat().st_mtime, path.stem


def _name(key: str) -> str:
    return f"{key[:2]}/{key}.json"
