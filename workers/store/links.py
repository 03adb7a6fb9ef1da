"""Put the same bytes in a second place as cheaply as the filesystem lets us."""

from __future__ import annotations

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
