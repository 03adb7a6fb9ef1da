"""A process with everything it has started: one session on POSIX, one Job Object on Windows."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

GONE = (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError)


class ProcessTree:
    """A started child; its tree can be weighed and ended."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, stderr: BinaryIO
    ) -> None:
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
            | getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        if sys.platform == "win32":
            from workers.host.winjob import Job

            # The handle is not public, and a second one by pid could be another process's.
            self._job = Job(int(self.popen._handle))  # type: ignore[attr-defined]
        self._process = psutil.Process(self.popen.pid)

    def memory(self) -> int:
        """Resident bytes of the child and all its descendants."""
        total = 0
        for process in [self._process, *self._descendants()]:
            with contextlib.suppress(*GONE):
                total += process.memory_info().rss
        return total

    def kill(self) -> None:
        """End the whole tree now; returns when the child itself is gone."""
        strays = self._descendants()  # also those which have left our session
        if sys.platform == "win32":
            self._job.end()
        else:
            with contextlib.suppress(*GONE):
                os.killpg(self.popen.pid, signal.SIGKILL)
        with contextlib.suppress(*GONE):
            self.popen.kill()
        for process in strays:
            with contextlib.suppress(*GONE):
                process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(timeout=10)
        if sys.platform == "win32":
            self._job.close()

    def _descendants(self) -> list[psutil.Process]:
        try:
            return self._process.children(recursive=True)
        except GONE:
            return []


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
