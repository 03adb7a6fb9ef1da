"""Who a process is, precisely enough to prove on the same machine that it has ended.

A temporary name claims its file or folder for the process that made it: its host (since the last
boot), the process and a random part. So what kill -9 leaves is recognized: on the same machine a
dead owner is known at once, from any other one by age.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import tempfile
import time
import uuid
from contextlib import suppress
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

    def is_running(self) -> bool:
        """Whether it provably lives and nobody has stopped it (SIGSTOP); never true of another
        machine's, or in doubt."""
        if self.host != this_host() or not self.started or started(self.pid) != self.started:
            return False
        try:
            status = psutil.Process(self.pid).status()
        except psutil.Error:
            return False
        return status not in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}


@cache
def this_host() -> str:
    """This machine since its last boot, and the process namespace that pids are counted in."""
    name = socket.gethostname() or "localhost"
    if sys.platform == "win32":
        import winreg

        # Not a hardware address: one network adapter more or less, and this would be another host.
        key = winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography")
        with key:
            return f"{name}/{winreg.QueryValueEx(key, 'MachineGuid')[0]}"
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


MAX_AGE = 24 * 3600.0
"""After so many seconds without a change, no process on any machine is still writing."""

_NAME = re.compile(r"([0-9a-f]{12})-([0-9]+)-([0-9.]*)-[0-9a-f]{32}")


def end_in_order() -> None:
    """Note for others on this machine that this process ends because somebody wants it to, or
    because a service is away: not of what it is working on."""
    with suppress(OSError):
        _farewell(Process.current()).touch()


def ended_in_order(process: Process) -> bool:
    """Whether a process of this machine left such a note."""
    return _farewell(process).exists()


def forget(process: Process) -> None:
    """Remove its note."""
    with suppress(OSError):
        _farewell(process).unlink()


def _farewell(process: Process) -> Path:
    name = f"modelmill-ended-{_scope()}-{process.pid}-{process.started}"
    return Path(tempfile.gettempdir(), name)


def claim() -> str:
    """A new unique name owned by this process."""
    me = Process.current()
    return f"{_scope()}-{me.pid}-{me.started}-{uuid.uuid4().hex}"


def claim_in(name: str) -> str:
    """The claim that a name contains; a name without one is its own claim."""
    found = _NAME.search(name)
    return found.group() if found else name


def owner_of(name: str) -> Process | None:
    """The process that claimed the name; None: not one of this machine since its last boot."""
    found = _NAME.search(name)
    if not found or found.group(1) != _scope():
        return None
    return Process(this_host(), int(found.group(2)), found.group(3))


def owner_alive(name: str) -> bool | None:
    """Whether the process that claimed the name still runs; None: it cannot be known here."""
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
