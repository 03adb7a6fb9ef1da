"""Files whose content is known by digest: checked while they are read or written, and counted."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from feed.errors import Corrupt, TimeLimit, UnsafePath, local_errors
from feed.interface import Progress
from machine import files
from machine.files import long_path
from matrix.digest import FileEntry
from matrix.paths import path_problems

_LONGEST = 200
_MOST_TOLD = 10
"""Files that are named for one fault."""


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


def receive(
    dest: Path,
    entries: Sequence[FileEntry],
    read: Callable[[FileEntry], Iterable[bytes]],
    progress: Progress | None = None,
) -> None:
    """Write the files of a package into a new folder, each checked on the way.

    Their names were chosen by whoever published them.
    """
    refuse_unsafe(entries)
    meter = Meter(sum(entry.size for entry in entries), progress)
    with local_errors(dest):
        for entry in entries:
            target = long_path(dest) / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            write_checked(read(entry), entry, target, meter.moved)


def refuse_unsafe(entries: Iterable[FileEntry], title: str = "the package") -> None:
    """Raise unless all names stay inside the package's folder, on every system."""
    if problems := path_problems(entry.path for entry in entries):
        raise UnsafePath(f"{title} holds unsafe file names: {'; '.join(problems)}")


def differences(told: Mapping[str, str], held: Mapping[str, str]) -> list[str]:
    """How the files that are there differ from those that are listed, both as SHA-256 by path."""
    changed = [path for path in told.keys() & held.keys() if told[path] != held[path]]
    faults = {
        "is listed but missing": told.keys() - held.keys(),
        "is present but not listed": held.keys() - told.keys(),
        "does not match its listed digest": changed,
    }
    return [text for what, paths in faults.items() for text in _told(what, sorted(paths))]


def _told(what: str, paths: Sequence[str]) -> Iterator[str]:
    yield from (f"{shown(path)} {what}" for path in paths[:_MOST_TOLD])
    if len(paths) > _MOST_TOLD:
        yield f"the same holds for {len(paths) - _MOST_TOLD} more files"


def shown(name: str) -> str:
    """A name as one line: it may hold control sequences for a terminal."""
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class Meter:
    """Counts bytes, reports progress, and stops the transfer at its deadline."""

    def __init__(
        self, total: int, progress: Progress | None = None, timeout: float | None = None
    ) -> None:
        self._total = total
        self._done = 0
        self._progress = progress
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def moved(self, count: int) -> None:
        """Count bytes as done."""
        self._done += count
        self.check()
        if self._progress:
            self._progress(self._done, self._total)

    def left(self) -> float | None:
        """Seconds until the deadline, if there is one."""
        return None if self._deadline is None else self._deadline - time.monotonic()

    def check(self) -> None:
        """Raise `TimeLimit` after the deadline."""
        left = self.left()
        if left is not None and left <= 0:
            raise TimeLimit(f"not done within {self._timeout:g} s; nothing was published")
