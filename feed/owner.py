"""Who owns a temporary name, and whether that process is still there.

A name carries the scope in which its process id means something (host, boot, pid namespace),
the process id and a random part. What kill -9 leaves behind is then recognised at once on the
same machine, and by its age from any other one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import time
import uuid
from functools import cache
from pathlib import Path

import psutil

MAX_AGE = 24 * 3600.0
"""After so many seconds without a change nobody is still writing, wherever they were."""

_NAME = re.compile(r"([0-9a-f]{12})-([0-9]+)-[0-9a-f]{32}")


def claim() -> str:
    """A new unique name owned by this process."""
    return f"{_scope()}-{os.getpid()}-{uuid.uuid4().hex}"


def claim_in(name: str) -> str:
    """The claim in a name, whatever stands before and after it; a name without one is its own."""
    found = _NAME.search(name)
    return found.group() if found else name


def owner_alive(name: str) -> bool | None:
    """Whether the process that claimed the name still runs; None: cannot be told from here."""
    found = _NAME.search(name)
    if not found or found.group(1) != _scope():
        return None
    try:
        return psutil.Process(int(found.group(2))).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def abandoned(path: Path, *, max_age: float = MAX_AGE) -> bool:
    """Whether a claimed file or folder was left by a process that is gone."""
    alive = owner_alive(path.name)
    if alive is False:
        return True
    try:
        changed = max(entry.lstat().st_mtime for entry in [path, *_children(path)])
    except OSError:
        return False
    return time.time() - changed > max_age


def remove(path: Path) -> None:
    """Remove a temporary file or folder, which another process may be removing too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _children(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else []


@cache
def _scope() -> str:
    parts = [socket.gethostname(), str(Path("/proc/self/ns/pid").readlink()) if _linux() else ""]
    boot = Path("/proc/sys/kernel/random/boot_id")
    parts.append(boot.read_bytes().decode().strip() if boot.is_file() else "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _linux() -> bool:
    return Path("/proc/self/ns/pid").is_symlink()
