"""The memory of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

_CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def total(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that the processes here may use together: the machine's, or the container's limit."""
    limit: int = psutil.virtual_memory().total
    for name in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):
            limit = min(limit, int((cgroup / name).read_text(encoding="ascii")))
    return limit
