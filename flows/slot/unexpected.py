"""Errors that nobody foresaw, each as the end of one cell: with a class, a reason and a log."""

from __future__ import annotations

import hashlib
import re
import traceback
from contextlib import suppress
from pathlib import Path

from flows.slot.context import Shop
from matrix.errors import MillError
from matrix.status import FailureClass
from workers.build.pipeline import os_failure
from workers.errors import BuildFailed, StoreError

LINES = 20
"""Of a traceback, what the state keeps; the log has all of it."""


def failure_of(error: Exception, stage: str, log: Path) -> BuildFailed:
    """The failure of one cell that an exception stands for; its traceback goes into the log."""
    if isinstance(error, BuildFailed):
        return error
    lines = traceback.format_exception(error)
    with suppress(OSError):  # the disk may be what failed
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            stream.writelines(lines)
    failure = _classified(error, stage, log)
    failure.log_tail = "".join(lines[-LINES:])
    return failure


def _classified(error: Exception, stage: str, log: Path) -> BuildFailed:
    if isinstance(error, OSError):
        return os_failure(stage, error)
    if isinstance(error, MillError):
        failure = FailureClass.DISK if isinstance(error, StoreError) else FailureClass.UNKNOWN
        return BuildFailed(failure, stage, error.message, hint=error.hint or _look(log))
    text = f"{type(error).__name__}: {error}".strip().removesuffix(":")
    return BuildFailed(FailureClass.UNKNOWN, stage, f"unexpected {text}", hint=_look(log))


def _look(log: Path) -> str:
    return f"the whole log: {log}"


def log_of(shop: Shop, cell_id: str) -> Path:
    """Where everything that concerns a cell is written to."""
    return shop.logs / shop.plan.stamp / f"{log_name(cell_id)}.log"


def log_name(cell_id: str) -> str:
    """A file name for a cell's log: readable, safe on every file system, and its own."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", cell_id)[:120]
    return f"{readable}-{hashlib.sha256(cell_id.encode()).hexdigest()[:8]}"
