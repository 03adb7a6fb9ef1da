"""Bytes by digest: taken in with one read of each file, given out as links."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from machine.disk import reason
from machine.files import flush_file, hash_file, move, unlink
from matrix.digest import FileEntry, LocalFile
from workers.errors import CorruptBlob
from workers.store.folder import make_folder, make_way

READ_ONLY = 0o444


class NotAFile(OSError):
    """An output that is not a plain file (a link, a pipe, a name that is not text)."""


class Blobs:
    """The folder of blobs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[int, int, int]] = {}
        """Blobs this process has seen the right bytes of, as (inode, mtime, size) then."""

    def path(self, sha256: str) -> Path:
        """Where a blob is or would be."""
        return self._root / sha256[:2] / sha256

    def has(self, entry: FileEntry) -> bool:
        """Whether the blob is there with the right size."""
        try:
            status = self.path(entry.sha256).stat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == entry.size

    def read_in(self, folder: Path, spare: Callable[[], Path]) -> list[LocalFile]:
        """Hash every file below `folder`, synced and ready to be moved in.

        A file with other links to it is somebody else's too: it is copied into `spare()` while
        it is hashed. So is one on another volume, which could not be moved.
        """
        device = self._root.stat().st_dev
        hashed = []
        for number, path in enumerate(_files_below(folder)):
            status = path.stat()
            shared = status.st_nlink > 1 or status.st_dev != device
            copy = spare() / str(number) if shared else None
            sha256, size = hash_file(path, copy)
            if copy is None:
                _sync(path)
            entry = FileEntry(path.relative_to(folder).as_posix(), size, sha256)
            hashed.append(LocalFile(entry, copy or path))
        return hashed

    def move_in(self, hashed: LocalFile) -> None:
        """Give hashed bytes their place (under the gate)."""
        target = self.path(hashed.entry.sha256)
        if self.has(hashed.entry):
            unlink(hashed.source)
            return
        make_folder(target.parent)
        self.remove(hashed.entry.sha256)
        hashed.source.chmod(READ_ONLY)
        move(hashed.source, target)
        self._known[hashed.entry.sha256] = _identity(target.stat())

    def check(self, entry: FileEntry, *, afresh: bool = False) -> None:
        """Hash a blob unless this process has done so since it was last touched.

        One that cannot be read is as bad as one with other bytes.
        """
        path = self.path(entry.sha256)
        try:
            status = path.stat()
            if not afresh and self._known.get(entry.sha256) == _identity(status):
                return
            found = hash_file(path)
        except OSError as error:
            raise CorruptBlob(f"blob {entry.sha256} cannot be read: {reason(error)}") from error
        if found != (entry.sha256, entry.size):
            raise CorruptBlob(f"blob {entry.sha256} ({entry.path}) holds other bytes")
        self._known[entry.sha256] = _identity(status)

    def remove(self, sha256: str) -> int:
        """Remove a blob, or what stands in its place; returns the bytes it had."""
        path = self.path(sha256)
        self._known.pop(sha256, None)
        if make_way(path, self._root):
            return 0
        try:
            size = path.lstat().st_size
            unlink(path)
        except FileNotFoundError:
            return 0
        return size

    def all(self) -> Iterator[tuple[str, int]]:
        """Every blob with its size."""
        for shard in _entries(self._root):
            if shard.is_dir(follow_symlinks=False):  # no link is ours, and one may be a loop
                for blob in _entries(Path(shard.path)):
                    with contextlib.suppress(FileNotFoundError):
                        if blob.is_file(follow_symlinks=False):
                            yield blob.name, blob.stat(follow_symlinks=False).st_size


def _sync(path: Path) -> None:
    """What will become a blob must be on the disk before it is named."""
    if os.name == "nt":
        path.chmod(stat.S_IWRITE)
    flush_file(path)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _files_below(folder: Path) -> Iterator[Path]:
    """Plain files in a fixed order; anything else is an error, not a surprise in a package."""
    for entry in sorted(_entries(folder), key=lambda item: item.name):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(path)
        elif entry.is_file(follow_symlinks=False):
            try:
                entry.name.encode("utf-8")
            except UnicodeEncodeError as error:
                raise NotAFile(f"output {entry.name!a} has a name that is not text") from error
            yield path
        else:
            raise NotAFile(f"output {path.relative_to(folder)} is not a plain file")
