"""Locks by name between threads and processes; the lock of a dead process is free."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from workers.errors import Cancelled

GATE_WAIT = 0.002
"""Who holds the gate is done in about that time."""
FIRST_WAIT = 0.01
LONGEST_WAIT = 0.5
SHARED = 3
"""Letters of a name that choose its file: 4,096 files at most, and few names that share one."""


class Locks:
    """A folder of lock files, each for the names (digests) that begin alike.

    They stay, so that nobody can hold the lock on a file that has just been removed. Two names
    that share a file only wait for each other, so hold one at a time.
    """

    def __init__(self, folder: Path, gate_file: Path) -> None:
        self._folder = folder
        # One for all threads: each has a file and a count of its own in it.
        self._gate = FileLock(gate_file)
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def gate(self) -> Iterator[None]:
        """The lock for moments, never held while anything is computed."""
        with self._gate.acquire(poll_interval=GATE_WAIT):
            yield

    @contextmanager
    def hold(self, name: str, cancel: threading.Event | None = None) -> Iterator[None]:
        """The lock for as long as a stage runs; waiting for it can be cancelled."""
        path = self._folder / f"{name[:SHARED]}.lock"
        lock = FileLock(path, blocking=False, thread_local=False)
        wait = FIRST_WAIT
        while not _taken(lock):
            if cancel is None:
                time.sleep(wait)
            elif cancel.wait(wait):
                raise Cancelled("cancelled while another process was building the same stage")
            wait = min(wait * 2, LONGEST_WAIT)
        try:
            yield
        finally:
            lock.release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire()
    except Timeout:
        return False
    return True
