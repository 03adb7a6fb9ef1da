"""Removing what is ours: read-only files too, links but never what they point to."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ErrorInfo = tuple[type[BaseException], BaseException, TracebackType]


def remove(path: Path) -> None:
    """Remove a file or a folder, which another process may be removing too."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it; what cannot be removed stays, absent is fine."""

    def make_writable(action: Callable[..., Any], path: str, error: ErrorInfo) -> None:
        if not isinstance(error[1], PermissionError):
            return
        with suppress(OSError):
            if Path(path) != folder:
                Path(path).parent.chmod(0o700)
            if os.name == "nt":  # elsewhere only the folder counts, and a link shares its mode
                Path(path).chmod(stat.S_IWRITE)
            action(path)

    shutil.rmtree(folder, onerror=make_writable)
