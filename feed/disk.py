"""Files written so that they are either whole and durable or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from io import FileIO
from pathlib import Path

from feed.errors import Corrupt
from matrix.digest import FileEntry

CHUNK = 1 << 20

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def long_path(path: Path) -> Path:
    """The same place without Windows' limit of 260 characters and its reserved names."""
    path = path.resolve()
    if sys.platform == "win32":
        text = str(path)
        if text.startswith("\\\\?\\"):
            return path
        return Path("\\\\?\\UNC" + text[1:] if text.startswith("\\\\") else "\\\\?\\" + text)
    return path


def read_blocks(path: Path, what: str) -> Iterator[bytes]:
    """The bytes of a file; one that cannot be read is never treated as equal to anything."""
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(CHUNK):
                yield block
    except OSError as error:
        raise Corrupt(f"{what}: cannot read {path}: {error.strerror}") from error


def write_checked(
    blocks: Iterable[bytes], entry: FileEntry, temp: Path, moved: Callable[[int], None]
) -> None:
    """Write a new file in one pass while hashing it; `Corrupt` if it is not what `entry` says."""
    digest = hashlib.sha256()
    size = 0
    with temp.open("xb", buffering=0) as file:
        for block in blocks:
            digest.update(block)
            size += len(block)
            if size > entry.size:
                break
            _write_all(file, block)
            moved(len(block))
    if size != entry.size or digest.hexdigest() != entry.sha256:
        found = "longer" if size > entry.size else f"{size} bytes, sha256 {digest.hexdigest()}"
        raise Corrupt(
            f"{entry.path}: expected {entry.size} bytes, sha256 {entry.sha256}; found {found}"
        )


def read_whole(path: Path | str) -> bytes:
    """The bytes of a small file, with as few system calls as `open` makes."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - listings give names
        return file.read()


def overwrite(path: Path, data: bytes) -> None:
    """Give a small file these bytes, in place: no file is made, none is removed."""
    try:
        file = path.open("r+b", buffering=0)
    except FileNotFoundError:
        file = path.open("xb", buffering=0)
    with file:
        _write_all(file, data)
        file.truncate(len(data))


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def hash_file(path: Path, name: str) -> FileEntry:
    """The entry of a local file."""
    digest = hashlib.sha256()
    size = 0
    for block in read_blocks(path, name):
        digest.update(block)
        size += len(block)
    return FileEntry(name, size, digest.hexdigest())


def create_exclusive(temp: Path, final: Path) -> None:
    """Give a finished file its final name, or raise `FileExistsError`; never replaces.

    Where hard links are missing the caller's lock makes the two steps safe.
    """
    if sys.platform == "win32":
        temp.rename(final)
        return
    try:
        os.link(temp, final)
    except FileExistsError:
        # A network file system may repeat a link whose reply was lost: then it is our own.
        if not temp.samefile(final):
            raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if final.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from error
        temp.rename(final)


class Syncer:
    """Flush files and folders to the disk, many at once: the flushes share their waiting."""

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable
        self._lock = threading.Lock()
        self._pool: tuple[int, ThreadPoolExecutor] | None = None
        """With the process that made it: threads do not survive a fork."""

    def files(self, paths: Collection[Path]) -> None:
        """Flush the content of files."""
        self._each(_sync_file, paths)

    def folders(self, paths: Collection[Path]) -> None:
        """Flush the names in folders, where the platform can."""
        if sys.platform != "win32":
            self._each(_sync_folder, paths)

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
                self._pool = os.getpid(), ThreadPoolExecutor(8, "feed-sync")
            return self._pool[1]


def _sync_file(path: Path) -> None:
    # Open for writing: network shares and Windows flush nothing else.
    with path.open("r+b", buffering=0) as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot flush a folder; they order names themselves.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(handle)
