"""Opening a SQLite file where nothing can be written: read-only media, another user's folder.

A file in WAL mode is normally read with two files beside it, which SQLite makes and removes. Where
it cannot, there are three cases: somebody has them open, they were never left, or they were.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Source:
    """A way to a file that is only read; `close` removes what was made for it."""

    connect: Callable[[], sqlite3.Connection]
    copy: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self.copy is not None:
            self.copy.cleanup()


def is_writable(path: Path) -> bool:
    """Whether SQLite can open the file and make others beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def open_source(path: Path) -> Source:
    """How to read a file that is not writable."""
    wal, shm = (path.with_name(f"{path.name}-{ending}") for ending in ("wal", "shm"))
    if not wal.exists() or not wal.stat().st_size:
        return Source(partial(_connect, path, "immutable=1"))
    if shm.exists():
        return Source(partial(_connect, path, "mode=ro"))
    # A copy of what was killed or put on a medium half-way: its last changes are beside it.
    copy = tempfile.TemporaryDirectory(prefix="modelmill-state-", ignore_cleanup_errors=True)
    for file in (path, wal):
        shutil.copy(file, copy.name)
    return Source(partial(_connect, Path(copy.name) / path.name, ""), copy)


def _connect(path: Path, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(path.absolute().as_posix())}?{how}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)
