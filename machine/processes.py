"""Who a process is, precisely enough to prove on the same machine that it has ended."""

from __future__ import annotations

import os
import platform
import sys
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_LINUX: bool = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class Process:
    """A process for as long as it lives: another one with the same pid is not equal to it."""

    host: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Process:
        """The one that asks."""
        pid = os.getpid()
        return cls(this_host(), pid, started(pid) or "")

    def is_dead(self) -> bool:
        """Whether it has provably ended; never true of another machine's, or in doubt."""
        if self.host != this_host():
            return False
        now = started(self.pid)
        return now is None or bool(now and self.started and now != self.started)


@cache
def this_host() -> str:
    """This machine since its last boot, and the process namespace that pids are counted in."""
    name = platform.node() or "localhost"
    if _LINUX:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{name}/{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    return f"{name}/{uuid.getnode():012x}"


def started(pid: int) -> str | None:
    """When a process was started, in a unit that a change of the clock leaves alone.

    None: there is no such process, or only its zombie. Empty: there is one, but we may not look.
    """
    return _started_linux(pid) if _LINUX else started_elsewhere(pid)


def _started_linux(pid: int) -> str | None:
    # Not psutil: its start times are wall-clock times and move when the clock is set.
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "" if _hidden(pid) else None
    except OSError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]


def started_elsewhere(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return ""


def _hidden(pid: int) -> bool:
    """Whether a process that /proc does not show (hidepid) exists all the same. POSIX only."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
