"""A second name or a second copy for the same bytes, as cheaply as the file system allows."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

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
