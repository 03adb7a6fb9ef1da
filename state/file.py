"""A SQLite state that is only read, also where nothing can be written: media, foreign folders.

SQLite reads a file in WAL mode with two files beside it, which it creates and removes. Where it
cannot, either somebody has them open, or they do not exist, or a killed process left them behind.
Python's own driver does, so that `modelmill status` does not load SQLAlchemy.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from state.errors import StateError, of_sqlite
from state.sql import Row, Rows, plain, spoken

BUSY_SECONDS = 60
"""How long to wait for another process's transaction; the longest of ours takes seconds."""

_MAGIC = b"SQLite format 3\0"
_CHECKED_BYTES = 16 * 2**20
"""Larger files would slow down `status`; their damage shows when it is read."""


class StateFile:
    """One connection for all threads."""

    sqlite = True

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._turn = threading.Lock()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        with self._in_our_words():
            self._connection = self._open(path)
        self._connection.row_factory = sqlite3.Row

    def fetch(self, query: str, **values: Any) -> list[Row]:
        """The rows of a query."""
        with self._turn, self._in_our_words():
            asked = spoken(query, sqlite=True), plain(values)
            return [dict(row) for row in self._connection.execute(*asked)]

    def close(self) -> None:
        """Close the connection."""
        with self._in_our_words():
            self._connection.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _open(self, path: Path) -> sqlite3.Connection:
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            return _connect(path, "mode=rw")
        wal, shm = (path.with_name(f"{path.name}-{ending}") for ending in ("wal", "shm"))
        if not wal.exists() or not wal.stat().st_size:
            return _connect(path, "immutable=1")
        if shm.exists():
            return _connect(path, "mode=ro")
        # The writer was killed: its last changes are in the WAL file; only a copy can take them in.
        self._copy = tempfile.TemporaryDirectory(
            prefix="modelmill-state-", ignore_cleanup_errors=True
        )
        for file in (path, wal):
            shutil.copy(file, self._copy.name)
        return _connect(Path(self._copy.name) / path.name, "mode=rw")

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise of_sqlite(self.label, str(error)) from error
        except UnicodeDecodeError as error:  # names in a damaged schema
            raise of_sqlite(self.label, "malformed text in it") from error
        except OSError as error:
            raise StateError(
                f"the state {self.label} cannot be read: {error.strerror}",
                hint="check its permissions",
            ) from error


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{_uri(path.absolute().as_posix())}?{how}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()  # else Windows can neither move nor remove the file
        raise
    return connection


def _uri(path: str) -> str:
    """`file:///C:/it`; after an empty authority come `//server/it` and `//?/C:/it` too."""
    return f"file://{'' if path.startswith('/') else '/'}{quote(path, safe='/:')}"


def is_fresh(path: Path) -> bool:
    """Whether the file has yet to be created; refuses a file that is not a database."""
    try:
        if path.is_dir():  # Windows gives folders no size
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not path.exists() or path.stat().st_size == 0:
            return True
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise StateError(
            f"the state {path} cannot be opened: {error.strerror}",
            hint="choose a file in a folder that you can write to with --state",
        ) from error
    if head != _MAGIC:
        raise StateError(
            f"{path} is not a state file of modelmill",
            hint="it was left as it is; choose another file with --state",
        )
    return False


def check_pages(rows: Rows) -> None:
    """Refuse a damaged file, unless it is too large to look at all of it."""
    if Path(rows.label).stat().st_size > _CHECKED_BYTES:
        return
    (verdict,) = rows.fetch("PRAGMA quick_check(1)")[0].values()
    if verdict != "ok":
        raise StateError(
            f"the state {rows.label} is damaged: {str(verdict).splitlines()[0]}",
            hint="it was left as it is; restore a backup or choose another with --state",
        )
