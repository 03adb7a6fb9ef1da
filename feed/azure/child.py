"""Runs a child process to its end: drains its pipes, keeps its deadlines, ends its whole tree."""

from __future__ import annotations

import atexit
import contextlib
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from machine.children import ProcessTree

TAIL = 200
"""Lines of the child's log that are kept."""
_LONGEST_LINE = 64 * 1024
_STDOUT_LIMIT = 1 << 20
_LINES = 1000
"""Lines that may wait to be looked at; a flood beyond that slows the child, not us."""


class End(StrEnum):
    """How a child ended."""

    EXITED = "exited"
    STUCK = "stuck"
    OVERDUE = "overdue"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How long a child may run without progress, and in total."""

    idle: float
    total: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a child left behind."""

    end: End
    code: int
    stdout: str
    log: tuple[str, ...]
    """The last lines of its stderr."""


class Child:
    """One run of a program. `stop` may be called from any thread, before, while or after."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self._command = list(command)
        self._env = dict(env)
        self._cwd = cwd
        self._stopped = threading.Event()
        self._tree: ProcessTree | None = None
        self._lines: queue.Queue[str | None] = queue.Queue(_LINES)

    def stop(self) -> None:
        """End the run at once; it answers with `End.STOPPED`."""
        self._stopped.set()
        if self._tree is not None and self._tree.alive:
            self._tree.kill()

    def run(self, on_line: Callable[[str | None], bool], limits: RunLimits) -> Outcome:
        """Run to the end. `on_line` gets each line of stderr and tells whether it is progress.

        While there is none it gets None every now and then; what it raises ends the run.
        """
        tree = self._tree = ProcessTree(
            self._command,
            self._env,
            self._cwd,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        process = tree.popen
        out: list[bytes] = []
        readers = [
            threading.Thread(target=self._read_log, args=(process.stderr,), daemon=True),
            threading.Thread(target=_read_all, args=(process.stdout, out), daemon=True),
        ]
        for reader in readers:
            reader.start()
        _running.add(self)
        tail: deque[str] = deque(maxlen=TAIL)
        try:
            end = self._watch(process, on_line, tail, limits)
        finally:
            _running.discard(self)
            # Also on Ctrl-C: nothing of the tree outlives this call.
            if tree.alive or any(reader.is_alive() for reader in readers):
                tree.kill()
            self._drain(readers, tail)
        return Outcome(end, process.returncode, b"".join(out).decode(errors="replace"), tuple(tail))

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        on_line: Callable[[str | None], bool],
        tail: deque[str],
        limits: RunLimits,
    ) -> End:
        start = moved = time.monotonic()
        ended = False
        while not ended:
            if self._stopped.is_set():
                return End.STOPPED
            try:
                line = self._lines.get(timeout=0.1)
            except queue.Empty:
                # A grandchild may hold the pipe open after the child itself has gone.
                ended = process.poll() is not None
                on_line(None)
            else:
                if line is None:
                    break
                tail.append(line)
                if on_line(line):
                    moved = time.monotonic()
            now = time.monotonic()
            if now - start > limits.total:
                return End.OVERDUE
            if now - moved > limits.idle:
                return End.STUCK
        return self._await_exit(process, limits.total - (time.monotonic() - start))

    def _await_exit(self, process: subprocess.Popen[bytes], left: float) -> End:
        deadline = time.monotonic() + left
        while not self._stopped.is_set():
            try:
                process.wait(timeout=0.1)
                return End.STOPPED if self._stopped.is_set() else End.EXITED
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    return End.OVERDUE
        return End.STOPPED

    def _read_log(self, pipe: IO[bytes]) -> None:
        with pipe:
            while line := pipe.readline(_LONGEST_LINE):
                self._lines.put(line.decode(errors="replace").rstrip())
        self._lines.put(None)

    def _drain(self, readers: list[threading.Thread], tail: deque[str]) -> None:
        """Let the readers finish; one that waits for room in the queue gets it."""
        deadline = time.monotonic() + 5.0
        while any(reader.is_alive() for reader in readers) and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=0.05)
                if line is not None:
                    tail.append(line)


_running: set[Child] = set()


@atexit.register
def _stop_all() -> None:
    """Daemon threads end without their `finally`: their children are ended here."""
    for child in list(_running):
        child.stop()


def _read_all(pipe: IO[bytes], into: list[bytes]) -> None:
    """Keep the head of stdout, read and drop the rest."""
    kept = 0
    with pipe:
        while block := pipe.read(64 * 1024):
            if kept < _STDOUT_LIMIT:
                into.append(block)
                kept += len(block)
