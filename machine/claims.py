"""Temporary names that say which process made them, so that what kill -9 leaves is recognized.

A claim carries its host (since the last boot), the process and a random part. On the same machine
a dead owner is known at once, from any other one by age.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from functools import cache
from pathlib import Path

from machine.processes import Process, this_host

MAX_AGE = 24 * 3600.0
"""After so many seconds without a change nobody is still writing, wherever they were."""

_NAME = re.compile(r"([0-9a-f]{12})-([0-9]+)-([0-9.]*)-[0-9a-f]{32}")


def claim() -> str:
    """A new unique name owned by this process."""
    me = Process.current()
    return f"{_scope()}-{me.pid}-{me.started}-{uuid.uuid4().hex}"


def claim_in(name: str) -> str:
    """The claim in a name, whatever stands before and after it; a name without one is its own."""
    found = _NAME.search(name)
    return found.group() if found else name


def owner_of(name: str) -> Process | None:
    """The process that claimed the name; None: not one of this machine since its last boot."""
    found = _NAME.search(name)
    if not found or found.group(1) != _scope():
        return None
    return Process(this_host(), int(found.group(2)), found.group(3))


def owner_alive(name: str) -> bool | None:
    """Whether the process that claimed the name still runs; None: cannot be told from here."""
    owner = owner_of(name)
    return None if owner is None else not owner.is_dead()


def abandoned(path: Path) -> bool:
    """Whether a claimed file or folder was left by a process that is gone."""
    if owner_alive(path.name) is False:
        return True
    try:
        inside = list(path.iterdir()) if path.is_dir() else []
        changed = max(entry.lstat().st_mtime for entry in [path, *inside])
    except OSError:
        return False
    return time.time() - changed > MAX_AGE


@cache
def _scope() -> str:
    return hashlib.sha256(this_host().encode()).hexdigest()[:12]
