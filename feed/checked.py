"""Files whose content is known by digest, checked while they are read or written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from feed.errors import Corrupt
from machine import files
from matrix.digest import FileEntry


def read_blocks(path: Path, what: str) -> Iterator[bytes]:
    """The bytes of a file; one that cannot be read is never treated as equal to anything."""
    try:
        yield from files.blocks(path)
    except OSError as error:
        raise Corrupt(f"{what}: cannot read {path}: {error.strerror}") from error


def hash_file(path: Path, name: str) -> FileEntry:
    """The entry of a local file."""
    try:
        sha256, size = files.hash_file(path)
    except OSError as error:
        raise Corrupt(f"{name}: cannot read {path}: {error.strerror}") from error
    return FileEntry(name, size, sha256)


def write_checked(
    blocks: Iterable[bytes], entry: FileEntry, temp: Path, moved: Callable[[int], None]
) -> None:
    """Write a new file in one pass while hashing it; `Corrupt` if it is not what `entry` says."""
    digest = hashlib.sha256()
    size = 0
    with temp.open("xb") as file:
        for block in blocks:
            digest.update(block)
            size += len(block)
            if size > entry.size:
                break
            file.write(block)
            moved(len(block))
    if size != entry.size or digest.hexdigest() != entry.sha256:
        found = "longer" if size > entry.size else f"{size} bytes, sha256 {digest.hexdigest()}"
        raise Corrupt(
            f"{entry.path}: expected {entry.size} bytes, sha256 {entry.sha256}; found {found}"
        )
