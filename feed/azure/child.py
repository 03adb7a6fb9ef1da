"""Runs a child process to its end: drains its pipes, keeps its deadlines, ends its whole tree."""

from __future__ import annotations

import atexit
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
_running: set[ProcessTree] = set()


class End(StrEnum):
    """How a child ended."""

    EXITED = "ended by itself"
    STUCK = "stopped because no more bytes were transferred"
    OVERDUE = "stopped at its time limit"


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


class _Log(threading.Thread):
    """Reads the log of a child as it comes."""

    def __init__(self, pipe: IO[bytes], on_line: Callable[[str], bool]) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._on_line = on_line
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.read = 0
        """Lines so far."""
        self.moved = time.monotonic()
        """When there was a line that means progress."""

    def run(self) -> None:
        with self._pipe:
            while block := self._pipe.readline(_LONGEST_LINE):
                line = block.decode(errors="replace").rstrip()
                self.tail.append(line)
                self.read += 1
                if self._on_line(line):
                    self.moved = time.monotonic()


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    on_line: Callable[[str], bool],
    on_beat: Callable[[], None],
    limits: RunLimits,
) -> Outcome:
    """Run a program to its end.

    `on_line` gets each line of stderr, in another thread; True means progress. `on_beat` is called
    several times a second; an error that it raises ends the run.
    """
    tree = ProcessTree(command, env, cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process = tree.popen
    assert process.stderr is not None
    out: list[bytes] = []
    log = _Log(process.stderr, on_line)
    readers = [log, threading.Thread(target=_read_all, args=(process.stdout, out), daemon=True)]
    for reader in readers:
        reader.start()
    _running.add(tree)
    try:
        end = _watch(process, log, on_beat, limits)
    finally:
        _running.discard(tree)
        # Also on Ctrl-C: nothing of the tree outlives this call.
        if tree.alive or any(reader.is_alive() for reader in readers):
            tree.kill()
        for reader in readers:
            reader.join(5.0)
    text = b"".join(out).decode(errors="replace")
    return Outcome(end, process.returncode, text, tuple(log.tail))


def _watch(
    process: subprocess.Popen[bytes], log: _Log, on_beat: Callable[[], None], limits: RunLimits
) -> End:
    start = time.monotonic()
    while log.is_alive():
        read = log.read
        log.join(0.1)
        on_beat()
        if process.poll() is not None and log.read == read:
            break  # a grandchild may hold the pipe open
        now = time.monotonic()
        if now - start > limits.total:
            return End.OVERDUE
        if now - log.moved > limits.idle:
            return End.STUCK
    try:
        process.wait(timeout=max(0.0, start + limits.total - time.monotonic()))
    except subprocess.TimeoutExpired:
        return End.OVERDUE
    return End.EXITED


@atexit.register
def _kill_all() -> None:
    """Daemon threads end without their `finally`: their children are ended here."""
    for tree in list(_running):
        tree.kill()


def _read_all(pipe: IO[bytes], into: list[bytes]) -> None:
    """Keep the head of stdout, read and drop the rest."""
    kept = 0
    with pipe:
        while block := pipe.read(64 * 1024):
            if kept < _STDOUT_LIMIT:
                into.append(block)
                kept += len(block)
