"""The locks of a store: the gate, and one for each key that a stage may run under."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from machine.locks import take
from machine.waits import Told, WaitCancelled, WaitedTooLong, untold
from matrix.status import FailureClass
from workers.errors import BuildFailed, Cancelled, StoreError
from workers.store.folder import make_way

LONGEST_SLEEP = 0.5
"""Seconds between two looks at a lock that is held while a stage runs."""
SHARED = 3
"""Letters of a name that choose its file: 4,096 files at most, and few names that share one."""


class Locks:
    """A folder of lock files, each for the names (digests) that begin alike.

    They stay, so that nobody can hold the lock on a file that has just been removed. Two names
    that share a file only wait for each other, so hold one at a time.
    """

    def __init__(self, folder: Path, gate_file: Path) -> None:
        self._folder = folder
        self._gate = gate_file

    @contextmanager
    def gate(self) -> Iterator[None]:
        """The lock for moments, never held while anything is computed."""
        try:
            lock = take(self._gate)
        except WaitedTooLong as error:
            raise StoreError(error.message, hint=error.hint) from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def hold(
        self,
        name: str,
        cancel: threading.Event | None = None,
        *,
        limit: float = float("inf"),
        told: Told = untold,
    ) -> Iterator[None]:
        """The lock for as long as a stage runs. Raises `BuildFailed` or `Cancelled`."""
        path = self._folder / f"{name[:SHARED]}.lock"
        make_way(path, self._folder.parent)
        what = f"another build that runs the same stage and holds {path}"
        try:
            lock = take(
                path, limit=limit, cancel=cancel, told=told, what=what, longest_sleep=LONGEST_SLEEP
            )
        except WaitCancelled as error:
            text = "cancelled while another process was building the same stage"
            raise Cancelled(text) from error
        except WaitedTooLong as error:
            raise BuildFailed(
                FailureClass.TIMEOUT,
                "store",
                f"another build has held {path} for {limit:.0f} s",
                hint="end the modelmill that is stopped or hangs, then: "
                "modelmill retry --class TIMEOUT",
            ) from error
        try:
            yield
        finally:
            lock.release()
