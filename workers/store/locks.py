"""Locks by name between threads and processes; the lock of a dead process is free."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from matrix.status import FailureClass
from workers.build.patience import Patience, Told, untold
from workers.errors import BuildFailed, Cancelled, StoreError
from workers.store.aside import Aside

GATE_WAIT = 0.002
"""Who holds the gate is done in about that time."""
GATE_LIMIT = 300.0
"""Who holds it longer will not let go: a process that was stopped, or hangs on its disk."""
FIRST_WAIT = 0.01
LONGEST_WAIT = 0.5
SHARED = 3
"""Letters of a name that choose its file: 4,096 files at most, and few names that share one."""


class Locks:
    """A folder of lock files, each for the names (digests) that begin alike.

    They stay, so that nobody can hold the lock on a file that has just been removed. Two names
    that share a file only wait for each other, so hold one at a time.
    """

    def __init__(self, folder: Path, gate_file: Path, aside: Aside) -> None:
        self._folder = folder
        self._aside = aside
        # One for all threads: each has a file and a count of its own in it.
        self._gate = FileLock(gate_file)

    @contextmanager
    def gate(self) -> Iterator[None]:
        """The lock for moments, never held while anything is computed."""
        try:
            held = self._gate.acquire(timeout=GATE_LIMIT, poll_interval=GATE_WAIT)
        except Timeout as error:
            raise StoreError(
                f"another process holds {self._gate.lock_file} for {GATE_LIMIT:.0f} s",
                hint="is a modelmill stopped or hung? end it and try again",
            ) from error
        with held:
            yield

    @contextmanager
    def hold(
        self,
        name: str,
        cancel: threading.Event | None = None,
        *,
        limit: float = float("inf"),
        told: Told = untold,
    ) -> Iterator[None]:
        """The lock for as long as a stage runs.

        Waiting for it can be cancelled, is told of, and ends after `limit` seconds: the lock of a
        dead process is free, but not that of one that is stopped.
        """
        path = self._folder / f"{name[:SHARED]}.lock"
        self._aside.make_way(path, self._folder.parent)
        lock = FileLock(path, blocking=False, thread_local=False)
        wait, patience = FIRST_WAIT, Patience(limit, told)
        while not _taken(lock):
            if patience.is_over(path, f"another build that runs the same stage and holds {path}"):
                raise _held_too_long(path, limit)
            if cancel is None:
                time.sleep(wait)
            elif cancel.wait(wait):
                raise Cancelled("cancelled while another process was building the same stage")
            wait = min(wait * 2, LONGEST_WAIT)
        try:
            yield
        finally:
            lock.release()


def _held_too_long(path: Path, limit: float) -> BuildFailed:
    return BuildFailed(
        FailureClass.TIMEOUT,
        "store",
        f"another build has held {path} for {limit:.0f} s",
        hint="end the modelmill that is stopped or hangs, then: modelmill retry --class TIMEOUT",
    )


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire()
    except Timeout:
        return False
    return True
