"""Files and folders: hashed, linked, replaced as a whole, flushed to the disk, removed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

CHUNK = 1 << 20
HELD_FOR = 5.0
"""Seconds that another program may hold a file of ours without our giving up."""
_HELD = {5, 32, 33, 145, 1224}
"""Windows: access denied, in use, locked, a folder that is not empty yet, mapped into memory."""


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, piece by piece."""
    _refuse_endless(path)
    with path.open("rb", buffering=0) as file:
        while block := file.read(CHUNK):
            yield block


def replace_file(
    path: Path, data: bytes, *, sync: bool = False, beside: Path | None = None
) -> None:
    """Give a file these bytes, all or none: readers see the old ones or the new ones.

    The folder is made if need be. `beside`: where the new file is written until it is complete,
    on the same volume (None: in the same folder). Raises `OSError` for a pipe or a device, which a
    rename would remove from the system.
    """
    if path.exists():
        _refuse_endless(path)
    half = (beside or path.parent) / f".{path.name}.{uuid.uuid4().hex[:12]}"
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with half.open("xb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        move(half, path)
    except BaseException:
        with suppress(OSError):
            unlink(half)
        raise


def hash_file(path: Path, copy: Path | None = None) -> tuple[str, int]:
    """SHA-256 and size in one read; with `copy` the bytes are written there on the way, flushed."""
    digest = hashlib.sha256()
    size = 0
    with copy.open("xb") if copy else nullcontext() as writer:
        for block in blocks(path):
            digest.update(block)
            size += len(block)
            if writer is not None:
                writer.write(block)
        if writer is not None:
            writer.flush()
            os.fsync(writer.fileno())
    return digest.hexdigest(), size


MOST_JSON = 64 * 2**20
"""Bytes of a JSON file that somebody else may have made; ours are far smaller."""


def read_json(path: Path, most: int = MOST_JSON) -> Any:
    """The value of a JSON file. Raises `OSError`, or `ValueError` for what is no such file."""
    try:
        return json.loads(read_file(path, most))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None


def _refuse_endless(path: Path) -> None:
    """Raise `OSError` for a pipe or a device: they have no end, and opening a pipe may wait."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is not a file", str(path))


def read_file(path: Path, most: int = MOST_JSON) -> bytes:
    """The bytes of a file that somebody has named. Raises `OSError`, or `ValueError` for what is no
    file or too large: a pipe and a device have no end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is not a file")
    if found.st_size > most:
        raise ValueError(f"{path.name} has {found.st_size} bytes, more than {most}")
    return path.read_bytes()


def long_path(path: Path) -> Path:
    """The same place without Windows' limit of 260 characters and its reserved names."""
    path = path.resolve()
    if sys.platform == "win32":
        text = str(path)
        if text.startswith("\\\\?\\"):
            return path
        return Path("\\\\?\\UNC" + text[1:] if text.startswith("\\\\") else "\\\\?\\" + text)
    return path


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below a folder in a fixed order; a link is one, and is not followed."""
    for path in sorted(folder.rglob("*")):
        if is_link(path) or not path.is_dir():
            yield path


_SURROGATE = 0x20000000
"""The bit of Windows' reparse tags that stand for another place: symbolic links, junctions."""


def is_link(path: Path) -> bool:
    """Whether a name stands for another place, on any system; False for what is not there."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if sys.platform == "win32":
        return bool(found.st_reparse_tag & _SURROGATE)
    return stat.S_ISLNK(found.st_mode)


def patiently(action: Callable[[], T], until: float | None = None) -> T:
    """Do it, and again while another program holds the file: on Windows, virus scanners and
    indexers open each new one for a moment, and meanwhile it can neither be renamed nor removed."""
    deadline = time.monotonic() + HELD_FOR if until is None else until
    pause = 0.01
    while True:
        try:
            return action()
        except OSError as error:
            if getattr(error, "winerror", None) not in _HELD or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.25)


def move(source: Path, dest: Path) -> None:
    """Rename a file or a folder; a file that has the new name is replaced, also a read-only one."""
    if os.name == "nt" and dest.is_file():
        dest.chmod(stat.S_IWRITE)
    patiently(lambda: source.replace(dest))


def unlink(path: Path) -> None:
    """Remove a file, also one that may only be read; absent is fine."""
    with suppress(FileNotFoundError):
        if os.name == "nt" and not is_link(path):
            path.chmod(stat.S_IWRITE)
        patiently(path.unlink)


def remove(path: Path) -> None:
    """Remove a file or a folder, which another process may be removing too."""
    if path.is_dir() and not is_link(path):
        remove_tree(path)
    else:
        unlink(path)


ErrorInfo = tuple[type[BaseException], BaseException, TracebackType]


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it; what cannot be removed stays, absent is fine."""
    until = time.monotonic() + HELD_FOR

    def insist(action: Callable[..., Any], path: str, error: ErrorInfo) -> None:
        if isinstance(error[1], FileNotFoundError):
            return
        with suppress(OSError):
            if Path(path) != folder:
                Path(path).parent.chmod(0o700)
            if os.name == "nt":  # elsewhere only the folder counts, and a link shares its mode
                Path(path).chmod(stat.S_IWRITE)
            patiently(lambda: action(path), until)

    shutil.rmtree(folder, onerror=insist)


@contextmanager
def temporary_folder(prefix: str, below: Path | None = None) -> Iterator[Path]:
    """A new folder that is removed afterwards, as far as other programs let go of it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=below))
    try:
        yield folder
    finally:
        remove_tree(folder)


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


def flush_all(flush: Callable[[Path], None], paths: Collection[Path]) -> None:
    """Flush many files or folders at once: the flushes share their waiting."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(flush, paths))


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FICLONE = 0x40049409
"""Linux: share the blocks of a file (btrfs, XFS)."""
NEVER_EXTERNAL = (".onnx", ".npz")
"""Large files that nothing reads as the external data of a model."""
SMALL = 1 << 20

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def create_exclusive(temp: Path, final: Path) -> None:
    """Give a finished file its final name, or raise `FileExistsError`; never replaces.

    Where hard links are missing the caller's lock makes the two steps safe.
    """
    if sys.platform == "win32":
        patiently(lambda: temp.rename(final))
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


def copy_file(source: Path, dest: Path) -> None:
    """Copy a file into a folder that need not be there."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, dest)


def place(source: Path, dest: Path, *, alone: bool = False) -> None:
    """Hard link, else reflink, else copy. Too many links or another volume end in a copy.

    `alone`: for a folder that tools will open. ONNX refuses external data with a second hard link
    (it takes that for an attack), so whatever may be such a file gets an inode of its own.
    """
    dest.parent.mkdir(parents=True, exist_ok=True)
    if alone and (source.stat().st_size < SMALL or dest.suffix not in NEVER_EXTERNAL):
        _copy(source, dest)
        return
    try:
        os.link(source, dest)
    except FileExistsError:
        raise
    except OSError:
        if not source.exists():
            raise
        _copy(source, dest)


def _copy(source: Path, dest: Path) -> None:
    if source.stat().st_size < SMALL or not _reflink(source, dest):
        shutil.copyfile(source, dest)


def _reflink(source: Path, dest: Path) -> bool:
    shared = False
    if sys.platform == "linux":
        import fcntl

        with source.open("rb") as reader, dest.open("wb") as writer, suppress(OSError):
            fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
            shared = True
    return shared
