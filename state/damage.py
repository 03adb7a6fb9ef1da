"""Damaged records of the state: left out and named, so that everything else can be used.

A file may be truncated or edited by hand, and a disk may corrupt it. Rows are read by
`state.rows.records`, what is inside their JSON columns within `Tolerated`; a command reports at its
end what was left out.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from matrix.codec import parse_json

MOST_KEPT = 1000
"""Damaged records that are remembered; a process may watch a damaged state for days."""

_FOUND: dict[str, None] = {}
_LOCK = threading.Lock()
_NUMBERS = frozenset({"seconds", "bytes", "exit_code", "n"})
_TEXTS = frozenset({"tree", "failure", "stage", "message", "why", "same_as", "unlisted", "unshown"})


def parsed(value: Any) -> Any:
    """The value of a JSON column, which PostgreSQL's driver has read already; text that is not JSON
    stays text."""
    if not isinstance(value, str | bytes):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value


def mapping(value: Any, where: str) -> dict[str, Any] | None:
    """A recorded JSON object without members of the wrong type. `where`: what messages call it."""
    if value is None:
        return None
    if not isinstance(value, dict):
        note(where)
        return None
    wrong = [name for name, item in value.items() if not _fits(name, item)]
    for name in wrong:
        note(f"{where}: {name}")
    return {name: item for name, item in value.items() if name not in wrong} if wrong else value


def _fits(name: str, item: Any) -> bool:
    if name in _NUMBERS:
        return item is None or (isinstance(item, int | float) and not isinstance(item, bool))
    return name not in _TEXTS or item is None or isinstance(item, str)


@dataclass(frozen=True, slots=True)
class Tolerated:
    """Wraps code that reads the contents of a record: a record of another shape ends the block and
    is noted."""

    where: str

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, TypeError | ValueError | LookupError | AttributeError):
            return False
        note(self.where)
        return True


def number(value: Any, where: str) -> float:
    """A number; SQLite takes, and gives back, anything."""
    if isinstance(value, int | float):
        return value
    note(f"{where}: not a number")
    return 0


def note(where: str) -> None:
    """Remember a damaged record."""
    with _LOCK:
        if len(_FOUND) < MOST_KEPT:
            _FOUND[where] = None


def taken() -> list[str]:
    """The damaged records found since the last call."""
    with _LOCK:
        found = list(_FOUND)
        _FOUND.clear()
    return found
