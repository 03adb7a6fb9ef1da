"""Runs a child process to its end: drains its pipes, keeps its deadlines, ends its whole tree."""

from __future__ import annotations

import atexit
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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

Lines = queue.Queue[str | None]
"""Ends with None."""

_running: set[ProcessTree] = set()


class End(StrEnum):
    """How a child ended."""

    EXITED = "exited"
    STUCK = "stuck"
    OVERDUE = "overdue"


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


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    on_line: Callable[[str | None], bool],
    limits: RunLimits,
) -> Outcome:
    """Run a program to its end. `on_line` gets each line of stderr; True means progress.

    While there is no line it gets None every now and then; an error that it raises ends the run.
    """
    tree = ProcessTree(command, env, cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process = tree.popen
    lines: Lines = queue.Queue(_LINES)
    out: list[bytes] = []
    readers = [
        threading.Thread(target=_read_log, args=(process.stderr, lines), daemon=True),
        threading.Thread(target=_read_all, args=(process.stdout, out), daemon=True),
    ]
    for reader in readers:
        reader.start()
    _running.add(tree)
    tail: deque[str] = deque(maxlen=TAIL)
    try:
        end = _watch(process, lines, on_line, tail, limits)
    finally:
        _running.discard(tree)
        # Also on Ctrl-C: nothing of the tree outlives this call.
        if tree.alive or any(reader.is_alive() for reader in readers):
            tree.kill()
        _drain(readers, lines, tail)
    return Outcome(end, process.returncode, b"".join(out).decode(errors="replace"), tuple(tail))


def _watch(
    process: subprocess.Popen[bytes],
    lines: Lines,
    on_line: Callable[[str | None], bool],
    tail: deque[str],
    limits: RunLimits,
) -> End:
    start = moved = time.monotonic()
    ended = False
    while not ended:
        try:
            line = lines.get(timeout=0.1)
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
    try:
        process.wait(timeout=max(0.0, start + limits.total - time.monotonic()))
    except subprocess.TimeoutExpired:
        return End.OVERDUE
    return End.EXITED


def _drain(readers: Sequence[threading.Thread], lines: Lines, tail: deque[str]) -> None:
    """Let the readers finish; one that waits for room in the queue gets it."""
    deadline = time.monotonic() + 5.0
    while any(reader.is_alive() for reader in readers) and time.monotonic() < deadline:
        with suppress(queue.Empty):
            line = lines.get(timeout=0.05)
            if line is not None:
                tail.append(line)


@atexit.register
def _kill_all() -> None:
    """Daemon threads end without their `finally`: their children are ended here."""
    for tree in list(_running):
        tree.kill()


def _read_log(pipe: IO[bytes], lines: Lines) -> None:
    with pipe:
        while line := pipe.readline(_LONGEST_LINE):
            lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def _read_all(pipe: IO[bytes], into: list[bytes]) -> None:
    """Keep the head of stdout, read and drop the rest."""
    kept = 0
    with pipe:
        while block := pipe.read(64 * 1024):
            if kept < _STDOUT_LIMIT:
                into.append(block)
                kept += len(block)
