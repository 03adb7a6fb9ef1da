"""Locks on files, between threads and processes; the system frees the lock of a dead process.

A process that was stopped keeps its locks, so no wait is without a limit unless it can be
cancelled, and every wait is reported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from machine.waits import Cancelled, Wait, WaitedTooLong, WaitRules

FOR_MOMENTS = WaitRules(limit=300.0)
"""A lock that is meant to be held for moments will not be released after so long."""


@contextmanager
def locked(
    path: Path, rules: WaitRules = FOR_MOMENTS, *, longest_sleep: float = 0.02
) -> Iterator[None]:
    """Hold the lock; see `take`."""
    lock = take(path, rules, longest_sleep=longest_sleep)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked_now(path: Path, busy: Exception) -> Iterator[None]:
    """Hold the lock, whose folder is made; raise this error if somebody holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = take_now(path)
    if lock is None:
        raise busy
    try:
        yield
    finally:
        lock.release()


def take(
    path: Path, rules: WaitRules = FOR_MOMENTS, *, what: str = "", longest_sleep: float = 0.02
) -> FileLock:
    """The lock, to be released. Raises `WaitedTooLong` or `Cancelled`.

    `what` is waited for, in the words of the caller; `longest_sleep`: seconds between two tries.
    """
    wait, sleep = Wait(rules), 0.002
    while (lock := take_now(path)) is None:
        if wait.is_over(path, what or f"the process that holds {path}"):
            raise WaitedTooLong(
                f"another process has held {path} for {rules.limit:.0f} s",
                hint="end the modelmill that is stopped or hung",
            )
        if rules.cancel is None:
            time.sleep(sleep)
        elif rules.cancel.wait(sleep):
            raise Cancelled(f"cancelled while waiting for {what or path}")
        sleep = min(sleep * 2, longest_sleep)
    return lock


def take_now(path: Path) -> FileLock | None:
    """The lock, to be released, if nobody holds it."""
    lock = FileLock(path, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock
