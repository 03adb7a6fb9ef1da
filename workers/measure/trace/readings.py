"""What a parser gives, whatever it has read."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.measure.trace.operators import Series
from workers.measure.trace.result import FallbackReason, Summary, TraceStatus

LARGEST = 2 * 1024**3
"""Bytes of a profile; QNN's rows of 1,000 operators in 1,000 executions are 70 MB."""


class Unreadable(ValueError):
    """A profile is damaged, cut off, or does not fit the iterations."""

    status = TraceStatus.PARSE_FAILED


class NoData(ValueError):
    """A profile holds nothing about operators."""

    status = TraceStatus.NO_DATA


class NoDetail(Exception):
    """There is no detailed summary, and why."""

    def __init__(self, reason: FallbackReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Window:
    """The iterations that a profile must cover."""

    warmup: int
    iterations: int

    @property
    def runs(self) -> int:
        """All of them."""
        return self.warmup + self.iterations

    def check(self, file: str, found: int, what: str, parts: int = 1, why: str = "") -> None:
        """Raise `Unreadable` unless a profile holds as many runs, of each part of the graph."""
        if found != self.runs * parts:
            of = f" of {parts} parts of the graph" if parts > 1 else ""
            raise Unreadable(
                f"{file} holds {found} {what}, and {self.warmup} runs to warm up and "
                f"{self.iterations} measured ones{of} make {self.runs * parts}{why}"
            )


@dataclass(frozen=True, slots=True)
class Readings:
    """The measured iterations of a source."""

    series: tuple[Series, ...]
    summary: Summary
    samples: int
    inference: tuple[float, ...] = ()
    """Microseconds of every iteration, if the source reports them."""
    partitions: int | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Further files that the detailed level is read from, by kind."""
    lacking: NoDetail | None = None
    """Why these are of the basic level although detail was asked for."""


def regular_size(path: Path, largest: int = LARGEST) -> int:
    """The bytes of a profile. Raises `NoData` unless it is a file, `Unreadable` if it is too big.

    A pipe would never end.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise NoData(f"{path.name} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise NoData(f"{path.name} is not a file")
    if found.st_size > largest:
        raise Unreadable(f"{path.name} has {found.st_size:,} bytes, and {largest:,} are allowed")
    return found.st_size
