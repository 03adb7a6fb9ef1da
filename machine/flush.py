"""Flushing files and the names in folders to the disk, so that they survive a power cut."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, wait
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
        self._lock = threading.Lock()
        self._pool: tuple[int, ThreadPoolExecutor] | None = None
        """With the process that made it: threads do not survive a fork."""

    def files(self, paths: Collection[Path]) -> None:
        """Flush the content of files."""
        self._each(flush_file, paths)

    def folders(self, paths: Collection[Path]) -> None:
        """Flush the names in folders."""
        self._each(flush_folder, paths)

    def _each(self, flush: Callable[[Path], None], paths: Collection[Path]) -> None:
        if not self._durable or not paths:
            return
        if len(paths) == 1:
            flush(next(iter(paths)))
            return
        done = [self._workers().submit(flush, path) for path in paths]
        wait(done)
        for one in done:
            one.result()

    def _workers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._pool[0] != os.getpid():
                self._pool = os.getpid(), ThreadPoolExecutor(8, "flush")
            return self._pool[1]


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
