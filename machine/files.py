"""Files read and written by plain system calls, and replaced as a whole.

A sweep reads and writes many small files from several threads, and at every call the others take
the interpreter from the caller. `open()` makes half a dozen calls before the first byte is read.
"""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

CHUNK = 1 << 20
_BINARY = getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _BINARY
_WRITE = os.O_RDWR | os.O_CREAT | _BINARY
_MODE = 0o666


def blocks(path: Path | str) -> Iterator[bytes]:
    """The bytes of a file, piece by piece."""
    with _opened(path, _READ) as file:
        while block := os.read(file, CHUNK):
            yield block


def read_whole(path: Path | str) -> bytes:
    """The bytes of a file that is small enough."""
    return b"".join(blocks(path))


@contextmanager
def created(path: Path) -> Iterator[int]:
    """A new file, to be filled with `write_all`. Raises `FileExistsError`."""
    with _opened(path, _WRITE | os.O_EXCL) as file:
        yield file


def write_all(file: int, data: bytes) -> None:
    """All of it: one call may take only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def overwrite(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Give a file these bytes in place; a process killed half-way leaves half of them.

    ext4 flushes a file that is cut to nothing and written anew, and takes long to find a number
    for a new one where many were just removed.
    """
    with _opened(path, _WRITE) as file:
        write_all(file, data)
        os.ftruncate(file, len(data))
        if sync:
            os.fsync(file)


def replace_file(
    path: Path, data: bytes, *, sync: bool = False, beside: Path | None = None
) -> None:
    """Give a file these bytes, all or none: readers see the old ones or the new ones.

    The folder is made if need be. `beside`: where the new file is written until it is complete,
    on the same volume (None: in the same folder).
    """
    half = (beside or path.parent) / f".{path.name}.{uuid.uuid4().hex[:12]}"
    try:
        try:
            overwrite(half, data, sync=sync)
            half.replace(path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            overwrite(half, data, sync=sync)
            half.replace(path)
    except BaseException:
        with suppress(OSError):
            half.unlink()
        raise


def hash_file(path: Path, copy: Path | None = None) -> tuple[str, int]:
    """SHA-256 and size in one read; with `copy` the bytes are written there on the way, flushed."""
    digest = hashlib.sha256()
    size = 0
    with created(copy) if copy else nullcontext() as writer:
        for block in blocks(path):
            digest.update(block)
            size += len(block)
            if writer is not None:
                write_all(writer, block)
        if writer is not None:
            os.fsync(writer)
    return digest.hexdigest(), size


def long_path(path: Path) -> Path:
    """The same place without Windows' limit of 260 characters and its reserved names."""
    path = path.resolve()
    if sys.platform == "win32":
        text = str(path)
        if text.startswith("\\\\?\\"):
            return path
        return Path("\\\\?\\UNC" + text[1:] if text.startswith("\\\\") else "\\\\?\\" + text)
    return path


@contextmanager
def _opened(path: Path | str, flags: int) -> Iterator[int]:
    file = os.open(path, flags, _MODE)
    try:
        yield file
    finally:
        os.close(file)
