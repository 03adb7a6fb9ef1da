"""Flushing files and the names in folders to the disk, so that they survive a power cut."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_BINARY = getattr(os, "O_BINARY", 0)


def flush_file(path: Path) -> None:
    """Flush the content of a file."""
    # Windows flushes only what is open for writing; elsewhere the file may be read-only.
    _flush(path, os.O_RDWR | _BINARY if sys.platform == "win32" else os.O_RDONLY)


def flush_folder(path: Path) -> None:
    """Flush the names in a folder, where the platform can."""
    if sys.platform == "win32":
        return
    try:
        _flush(path, os.O_RDONLY)
    except OSError as error:
        # Some network file systems cannot flush a folder; they order names themselves.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise


class Syncer:
    """Flushes many files or folders at once: the flushes share their waiting."""

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable

    def files(self, paths: Collection[Path]) -> None:
        """Flush the content of files."""
        self._each(flush_file, paths)

    def folders(self, paths: Collection[Path]) -> None:
        """Flush the names in folders."""
        self._each(flush_folder, paths)

    def _each(self, flush: Callable[[Path], None], paths: Collection[Path]) -> None:
        if self._durable:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(flush, paths))


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
