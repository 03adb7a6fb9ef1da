"""How a sweep ended: in words, as JSON, as an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flows.exports import is_export
from flows.quantity import brief
from flows.stop import Stop
from matrix.errors import Exit
from matrix.status import Status
from state.records import Outcome

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed cell, short enough to be printed."""

    cell: str
    status: Status
    failure: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and failures of a sweep."""

    stamp: str
    feed: str
    counts: dict[str, int]
    """Cells by status; exports are not counted."""
    failures: tuple[Failure, ...]
    open: int
    """Cells and exports that a resume would take up."""

    @property
    def has_content(self) -> bool:
        """Whether the feed holds anything of this sweep."""
        return any(self.counts.get(status) for status in (Status.PUBLISHED, Status.UNCHANGED))

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "stamp": self.stamp,
            "feed": self.feed,
            "cells": sum(self.counts.values()),
            "counts": self.counts,
            "open": self.open,
            "failures": [
                {
                    "cell": one.cell,
                    "status": str(one.status),
                    "class": one.failure,
                    "message": one.message,
                    "hint": one.hint,
                }
                for one in self.failures
            ],
        }

    def lines(self) -> list[str]:
        """For people: the counts, then each failure with its next step."""
        total = sum(self.counts.values())
        parts = [f"{count} {status.replace('_', ' ')}" for status, count in self.counts.items()]
        lines = [f"sweep {self.stamp}: {total} cells: {', '.join(parts) or 'none'}"]
        for one in self.failures[:_MOST_SHOWN]:
            lines.append(f"  {one.status} {one.cell}: {brief(f'{one.failure} {one.message}')}")
            if one.hint:
                lines.append(f"    next: {one.hint}")
        if len(self.failures) > _MOST_SHOWN:
            lines.append(
                f"  ... and {len(self.failures) - _MOST_SHOWN} more: modelmill status {self.stamp}"
            )
        return lines

    def exit_code(self, stop: Stop | None = None) -> Exit:
        """What a process that watched this sweep says."""
        if stop:
            return stop.exit_code
        if self.failures:
            return Exit.CELLS_FAILED
        return Exit.INTERRUPTED if self.open else Exit.OK


def summarize(stamp: str, feed: str, outcomes: Iterable[Outcome], *, publish: bool) -> Summary:
    """Count outcomes; `publish`: a verified cell is still to be published."""
    counts: Counter[Status] = Counter()
    failures = []
    still_open = 0
    for one in outcomes:
        if not is_export(one.cell):
            counts[one.status] += 1
        if one.status.failed:
            failures.append(
                Failure(
                    one.cell,
                    one.status,
                    str(one.failure or ""),
                    one.message or "",
                    one.hint or "",
                )
            )
        still_open += one.status.open or (publish and one.status is Status.VERIFIED)
    ordered = {str(status): counts[status] for status in Status if counts[status]}
    return Summary(stamp, feed, ordered, tuple(failures), still_open)
