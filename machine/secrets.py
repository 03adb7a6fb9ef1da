"""Credentials of a process, out of sight of other processes of the same user.

Model code that runs with consent is in a child without our credentials. On Linux it could read
them all the same: `/proc/PID/environ` shows every variable that its parent was started with.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from matrix.credentials import is_credential

_START, _END = 47, 48
"""Fields of `/proc/PID/stat`, counted behind the name of the program."""


def hide_credentials() -> None:
    """Overwrite credentials where the system shows them; `os.environ` and children keep them."""
    if sys.platform != "linux":
        return
    secrets = {name: value for name, value in os.environ.items() if is_credential(name, value)}
    if not secrets:
        return
    import ctypes  # which most commands do without

    for name, value in secrets.items():
        os.environ[name] = value  # the C library makes a copy elsewhere
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
    except (OSError, ValueError, IndexError):
        return  # without /proc, nobody reads it there
    block = b"\0" + ctypes.string_at(start, end - start)
    for name, value in secrets.items():
        entry = os.fsencode(f"{name}={value}")
        found = block.find(b"\0" + entry + b"\0")
        if found >= 0:
            skipped = len(os.fsencode(name)) + 1
            ctypes.memset(start + found + skipped, ord("*"), len(entry) - skipped)
