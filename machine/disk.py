"""How much a disk has left, in words too, and whether an error means that it is full."""

from __future__ import annotations

import errno
import re
import shutil
import sys
from pathlib import Path

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_FULL_WINDOWS = {39, 112}
"""ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL."""
if sys.platform == "win32":
    _FULL.add(112)  # winml-cli passes it on as an error number
FULL_WORDS = r"no space left|disk quota exceeded|not enough space on the disk|disk is full"
"""A pattern (letter case aside) of what programs say when a disk or a quota is used up."""


def is_full(error: OSError) -> bool:
    """Whether a disk or a quota is used up."""
    return error.errno in _FULL or getattr(error, "winerror", None) in _FULL_WINDOWS


def says_full(text: str) -> bool:
    """Whether a program says in its output that a disk or a quota is used up."""
    return re.search(FULL_WORDS, text, re.IGNORECASE) is not None


def reason(error: OSError) -> str:
    """What the system refused, in its words."""
    return error.strerror or str(error) or type(error).__name__


def existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next(one for one in (path, *path.parents) if one.exists())


def free(path: Path) -> int:
    """Bytes that this user can still write on the volume of `path`, which may be still to come."""
    return shutil.disk_usage(existing(path)).free


def size(path: Path) -> int:
    """Bytes of the volume of `path`, which may be still to come."""
    return shutil.disk_usage(existing(path)).total


def size_text(size: int) -> str:
    """Bytes as people read them: `1.25 GB`."""
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.2f} MB"
