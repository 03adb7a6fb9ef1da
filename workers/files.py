"""Files by plain system calls.

A sweep reads and writes many small files from several threads, and at every call the others take
the interpreter from the caller. `open()` makes half a dozen calls before the first byte is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 1 << 20
_BINARY = getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _BINARY
_WRITE = os.O_RDWR | os.O_CREAT | _BINARY
_MODE = 0o666


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, piece by piece."""
    with _opened(path, _READ) as file:
        while block := os.read(file, CHUNK):
            yield block


def read_whole(path: Path) -> bytes:
    """The bytes of a file that is small enough."""
    return b"".join(blocks(path))


@contextmanager
def created(path: Path) -> Iterator[int]:
    """A new file, to be filled with `write_all`. Raises `FileExistsError`."""
    with _opened(path, _WRITE | os.O_EXCL) as file:
        yield file


def overwrite(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Give a file these bytes; who is killed half-way leaves it half.

    In place: ext4 flushes a file that is cut to nothing and written anew, and takes long to find
    a number for a new one where many were just removed.
    """
    with _opened(path, _WRITE) as file:
        write_all(file, data)
        os.ftruncate(file, len(data))
        if sync:
            os.fsync(file)


def write_all(file: int, data: bytes) -> None:
    """All of it: one call may take only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync(path: Path) -> None:
    """Flush the content of a file to the disk."""
    # Windows flushes only what is open for writing; elsewhere the file may be read-only.
    with _opened(path, os.O_RDWR | _BINARY if os.name == "nt" else _READ) as file:
        os.fsync(file)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags, _MODE)
    try:
        yield file
    finally:
        os.close(file)
