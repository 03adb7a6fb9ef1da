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
from machine.waits import Told, WaitRules, untold
from matrix.status import FailureClass
from workers.errors import BuildFailed, Cancelled
from workers.host.process import HostProcess, Message
from workers.host.spec import mask

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


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the watch sees it."""

    stage: str
    log: Path
    log_start: int
    timeout: float
    limits: HostLimits
    watching: Watching
    secret: str | None

    def failed(self, failure: FailureClass, message: str, **more: Any) -> BuildFailed:
        """The error of this request, with the end of what it wrote."""
        return BuildFailed(
            failure,
            self.stage,
            mask(message, self.secret),
            log_tail=mask(read_tail(self.log, self.log_start), self.secret),
            **more,
        )


@dataclass(slots=True)
class Watch:
    """Waits for the answer of one request; a broken limit ends the process."""

    process: HostProcess
    call: Call
    peak: int = 0

    def wait(self, wanted: Callable[[Message], bool]) -> Message:
        """The message that answers; raises `BuildFailed` or `Cancelled` with the process ended."""
        deadline = time.monotonic() + self.call.timeout if self.call.timeout else None
        while True:
            try:
                message = self.process.receive(self.call.limits.poll)
            except queue.Empty:
                self._look(deadline)
                continue
            if message is None:
                raise self._died()
            if wanted(message):
                self.peak = max(self.peak, int(message.get("peak", 0)))
                return message
            self.call.watching.progress(mask(str(message.get("progress", "")), self.call.secret))
            self._look(deadline, cheap=True)

    def _look(self, deadline: float | None, *, cheap: bool = False) -> None:
        call = self.call
        cancel = call.watching.cancel
        if cancel is not None and cancel.is_set():
            self.process.end()
            raise Cancelled(f"{call.stage}: cancelled")
        if deadline is not None and time.monotonic() > deadline:
            self._end(FailureClass.TIMEOUT, f"no answer within {call.timeout:g} s", "--timeout")
        if cheap:
            return
        resident = self.process.tree.memory()
        self.peak = max(self.peak, resident)
        limits = call.limits
        if limits.memory and resident > limits.memory:
            text = f"used {_mb(resident)} of memory, the limit is {_mb(limits.memory)}"
            self._end(FailureClass.MEMORY, text, "fewer --jobs leave more for each")
        written = log_size(call.log) - call.log_start
        if limits.output and written > limits.output:
            self.process.end()
            cut_log(call.log, call.log_start + limits.output)
            text = f"wrote more than {_mb(limits.output)} to its log and was stopped"
            raise call.failed(FailureClass.CRASH, text, hint=f"see {call.log.name}")

    def _end(self, failure: FailureClass, text: str, hint: str) -> None:
        self.process.end()
        raise self.call.failed(failure, text, hint=hint)

    def _died(self) -> BuildFailed | Cancelled:
        call = self.call
        if self.process.closed:
            return Cancelled(f"{call.stage}: the engine host was closed")
        self.process.wait(5)
        code = self.process.exit_code  # before our own kill can become its reason
        self.process.end()
        if code == -9:
            text = "the engine host was killed (SIGKILL), most likely because memory ran out"
            hint = "set a memory limit or fewer --jobs"
            return call.failed(FailureClass.MEMORY, text, exit_code=code, hint=hint)
        text = f"the engine host died with {describe_exit(code)}"
        hint = f"the end of {call.log.name} tells where"
        return call.failed(FailureClass.CRASH, text, exit_code=code, hint=hint)


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
