"""Child processes: started apart from our terminal, measured, ended with all they have started.

A child leads a session of its own on POSIX and belongs to a Job Object on Windows, so that what it
starts is reached even when it has lost its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    KILL_ON_JOB_CLOSE = 0x2000
    EXTENDED_LIMIT_INFORMATION = 9

    class _Basic(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _Extended(ctypes.Structure):
        _fields_ = (
            ("Basic", _Basic),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    class Job:
        """A job that one process and its descendants belong to."""

        def __init__(self, process_handle: int) -> None:
            self._api = ctypes.WinDLL("kernel32", use_last_error=True)
            self._api.CreateJobObjectW.restype = wintypes.HANDLE
            self._handle: wintypes.HANDLE | None = wintypes.HANDLE(
                self._api.CreateJobObjectW(None, None)
            )
            limits = _Extended()
            limits.Basic.LimitFlags = KILL_ON_JOB_CLOSE
            done = self._api.SetInformationJobObject(
                self._handle,
                EXTENDED_LIMIT_INFORMATION,
                ctypes.byref(limits),
                ctypes.sizeof(limits),
            ) and self._api.AssignProcessToJobObject(self._handle, wintypes.HANDLE(process_handle))
            self.holds = bool(done)

        def end(self) -> None:
            """Terminate every process of the job."""
            if self._handle:
                self._api.TerminateJobObject(self._handle, 1)

        def close(self) -> None:
            """Give the handle back (and end what is left); a second time does no harm."""
            handle, self._handle = self._handle, None
            if handle:
                self._api.CloseHandle(handle)


GONE = (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError)
_MAIN = Path(__file__).resolve().parents[1] / "modelmill" / "__main__.py"
_APART = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(
    subprocess, "CREATE_NO_WINDOW", 0
)


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line of a module of ours, with our packages whatever the import path holds.

    `-P` keeps the folder of the script off the import path.
    """
    return [sys.executable, "-P", str(_MAIN), "-m", module, *arguments]


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: int = subprocess.PIPE,
    stdout: IO[bytes] | int = subprocess.PIPE,
    stderr: IO[bytes] | int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a program that no signal to our terminal reaches."""
    return subprocess.Popen(
        list(command),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
        creationflags=_APART,
    )


class ProcessTree:
    """A started child. The memory of its whole tree can be measured, and the tree ended."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        stdin: int = subprocess.PIPE,
        stderr: IO[bytes] | int,
    ) -> None:
        self.popen = start(command, env=env, cwd=cwd, stdin=stdin, stderr=stderr)
        if sys.platform == "win32":
            # The handle is not public, and a second one by pid could be another process's.
            self._job = Job(int(self.popen._handle))  # type: ignore[attr-defined]

    @property
    def alive(self) -> bool:
        """Whether the child itself runs."""
        return self.popen.poll() is None

    def memory(self) -> int:
        """Resident bytes of the child and all its descendants."""
        total = 0
        for process in family(self.popen.pid) if self.alive else ():
            with suppress(*GONE):
                total += process.memory_info().rss
        return total

    def kill(self) -> None:
        """End the whole tree now; returns when the child itself is gone. Safe to call again."""
        members = family(self.popen.pid) if self.alive else []  # some have left our session
        if sys.platform == "win32":
            self._job.end()
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            self.popen.kill()
        kill(members)
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(timeout=10)
        if sys.platform == "win32":
            self._job.close()


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants; none if it has ended."""
    with suppress(*GONE):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def kill(processes: Iterable[psutil.Process]) -> None:
    """End these now."""
    for process in processes:
        with suppress(*GONE):
            process.kill()


def kill_users(folder: Path) -> None:
    """End the programs that a dead process left running on one of its folders.

    Otherwise they would go on writing while the folder is removed.
    """
    for process in psutil.process_iter(["cmdline"]):
        arguments = process.info["cmdline"] or []
        if any(str(folder) in argument for argument in arguments):
            with suppress(psutil.Error):
                process.kill()
                process.wait(10)


def describe_exit(code: int | None) -> str:
    """An exit code in words: `signal SIGSEGV`, `exit code 3`, `exit code 0xC0000005`."""
    if code is None:
        return "no exit code"
    if code < 0:
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code:#010X}" if code > 0xFFFF else f"exit code {code}"
