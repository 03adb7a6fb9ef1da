"""Opening a SQLite file where nothing can be written: read-only media, another user's folder.

SQLite reads a file in WAL mode with two files beside it, which it creates and removes. Where it
cannot, either somebody has them open, or they do not exist, or a killed process left them behind.
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
    """How to open a file for reading; `close` removes the copy, if one was made."""

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
    """Find out how to read a file that is not writable."""
    wal, shm = (path.with_name(f"{path.name}-{ending}") for ending in ("wal", "shm"))
    if not wal.exists() or not wal.stat().st_size:
        return Source(partial(_connect, path, "immutable=1"))
    if shm.exists():
        return Source(partial(_connect, path, "mode=ro"))
    # The writer was killed: its last changes are in the WAL file, which only a copy can take in.
    copy = tempfile.TemporaryDirectory(prefix="modelmill-state-", ignore_cleanup_errors=True)
    for file in (path, wal):
        shutil.copy(file, copy.name)
    return Source(partial(_connect, Path(copy.name) / path.name, ""), copy)


def _connect(path: Path, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(path.absolute().as_posix())}?{how}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)
