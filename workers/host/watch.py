"""Watches one request: its time, memory and output, and whether it is cancelled."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine.children import describe_exit
from machine.waits import Cancelled, Told, WaitRules, untold
from matrix.status import FailureClass
from workers.errors import BuildFailed
from workers.host.process import HostProcess, Message, mask

TAIL_LINES = 40
TAIL_BYTES = 8192


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What a host may use; 0 means no limit (threads: as the libraries like)."""

    start_timeout: float = 300
    plan_timeout: float = 600
    timeout: float = 3600
    memory: int = 0
    output: int = 64 * 1024 * 1024
    threads: int = 0
    poll: float = 0.1
    """Seconds between two checks of cancel, clock, memory and log."""


@dataclass(frozen=True, slots=True)
class Watching:
    """How a caller waits for an answer: how long, and what is called with progress."""

    timeout: float | None = None
    """None: the limit of the host."""
    cancel: threading.Event | None = None
    log: Path | None = None
    """Gets what the request prints; None: the log of the host."""
    progress: Told = untold

    def waits(self, limit: float) -> WaitRules:
        """For waits meanwhile, which are reported and written to the log."""
        return WaitRules(limit, self.cancel, self._note)

    def _note(self, text: str) -> None:
        self.progress(text)
        if self.log is not None:
            with contextlib.suppress(OSError):
                self.log.parent.mkdir(parents=True, exist_ok=True)
                with self.log.open("a", encoding="utf-8") as stream:
                    stream.write(f"{text}\n")


UNWATCHED = Watching()


@dataclass(slots=True)
class Call:
    """One request, which is watched until it is answered; a broken limit ends the process."""

    stage: str
    log: Path
    log_start: int
    timeout: float
    limits: HostLimits
    watching: Watching
    secret: str | None
    peak: int = 0
    """Bytes of memory of the process and its children."""

    def failed(self, failure: FailureClass, message: str, **more: Any) -> BuildFailed:
        """The error of this request, with the end of what it wrote."""
        return BuildFailed(
            failure,
            self.stage,
            mask(message, self.secret),
            log_tail=mask(read_tail(self.log, self.log_start), self.secret),
            **more,
        )

    def wait(self, process: HostProcess, wanted: Callable[[Message], bool]) -> Message:
        """The message that answers; raises `BuildFailed` or `Cancelled` with the process ended."""
        deadline = time.monotonic() + self.timeout if self.timeout else None
        while True:
            try:
                message = process.receive(self.limits.poll)
            except queue.Empty:
                self._look(process, deadline)
                continue
            if message is None:
                raise self._died(process)
            if wanted(message):
                self.peak = max(self.peak, int(message.get("peak", 0)))
                return message
            self.watching.progress(mask(str(message.get("progress", "")), self.secret))
            self._look(process, deadline, cheap=True)

    def _look(self, process: HostProcess, deadline: float | None, *, cheap: bool = False) -> None:
        cancel, limits = self.watching.cancel, self.limits
        if cancel is not None and cancel.is_set():
            process.end()
            raise Cancelled(f"{self.stage}: cancelled")
        if deadline is not None and time.monotonic() > deadline:
            process.end()
            text = f"no answer within {self.timeout:g} s"
            raise self.failed(FailureClass.TIMEOUT, text, hint="--timeout")
        if cheap:
            return
        resident = process.tree.memory()
        self.peak = max(self.peak, resident)
        if limits.memory and resident > limits.memory:
            process.end()
            text = f"used {_mb(resident)} of memory, the limit is {_mb(limits.memory)}"
            raise self.failed(FailureClass.MEMORY, text, hint="fewer --jobs leave more for each")
        written = log_size(self.log) - self.log_start
        if limits.output and written > limits.output:
            process.end()
            cut_log(self.log, self.log_start + limits.output)
            text = f"wrote more than {_mb(limits.output)} to its log and was stopped"
            raise self.failed(FailureClass.CRASH, text, hint=f"see {self.log.name}")

    def _died(self, process: HostProcess) -> BuildFailed | Cancelled:
        if process.closed:
            return Cancelled(f"{self.stage}: the engine host was closed")
        process.wait(5)
        code = process.exit_code  # before our own kill can become its reason
        process.end()
        if code == -9:
            text = "the engine host was killed (SIGKILL), most likely because memory ran out"
            hint = "set a memory limit or fewer --jobs"
            return self.failed(FailureClass.MEMORY, text, exit_code=code, hint=hint)
        text = f"the engine host died with {describe_exit(code)}"
        hint = f"the end of {self.log.name} tells where"
        return self.failed(FailureClass.CRASH, text, exit_code=code, hint=hint)


def log_size(log: Path) -> int:
    """Bytes in a log; 0 if there is none yet."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def read_tail(log: Path, start: int = 0) -> str:
    """The last lines that were written to a log after `start`."""
    try:
        with log.open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(start, end - TAIL_BYTES))
            text = stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def cut_log(log: Path, size: int) -> None:
    """Cut a flooded log to its first `size` bytes and note that in it."""
    with contextlib.suppress(OSError), log.open("r+b") as stream:
        stream.truncate(size)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\n[modelmill: log cut here]\n")


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
