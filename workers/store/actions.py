"""Action records: what a stage with this key made, and what it took."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine.files import read_whole
from matrix.codec import from_json
from matrix.digest import FileEntry, files_digest
from workers.store.aside import Aside
from workers.store.folder import write_record
from workers.store.sealed import seal, unseal

SCHEMA = 2


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
    """The folder of records."""

    def __init__(self, root: Path, scratch: Path, aside: Aside) -> None:
        self._root = root
        self._scratch = scratch
        self._aside = aside

    def path(self, key: str) -> Path:
        """Where a record is or would be."""
        return self._root / key[:2] / f"{key}.json"

    def read(self, key: str) -> Action | None:
        """A record; one that cannot be understood is no record (and is removed)."""
        path = self.path(key)
        try:
            data = read_whole(path)
        except OSError:
            return None
        try:
            return _from_json(key, unseal(data))
        except (ValueError, KeyError, TypeError):
            self.remove(key)
            return None

    def touch(self, key: str) -> None:
        """Note a use."""
        with contextlib.suppress(OSError):
            os.utime(self.path(key))

    def write(self, action: Action) -> None:
        """Record a run; its bytes must be in place.

        Not synced: a power cut may cost the record, and one that it leaves half is no record.
        """
        path = self.path(action.key)
        value = {"schema": SCHEMA, **asdict(action)}
        write_record(path, seal(value), self._root.parent, self._scratch, self._aside)

    def remove(self, key: str) -> None:
        """Forget a run."""
        path = self.path(key)
        try:
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError:
            if not self._aside.make_way(path, self._root.parent):
                raise

    def all(self) -> Iterator[tuple[float, str]]:
        """Every record's (last use, key)."""
        for path in self._root.glob("*/*.json"):
            with contextlib.suppress(FileNotFoundError):
                yield path.stat().st_mtime, path.stem


def _from_json(key: str, value: Mapping[str, Any]) -> Action:
    if value["schema"] != SCHEMA or value["key"] != key:
        raise ValueError("not this record")
    return from_json({name: item for name, item in value.items() if name != "schema"}, Action)
