"""Damaged records of the state: left out and named, so that everything else can be used.

A file may be truncated or edited by hand, and a disk may corrupt it. JSON columns are read through
`mapping`, their contents inside `Tolerated`, numbers through `Number`; a command reports at its end
what was left out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sqlalchemy import Dialect, Float
from sqlalchemy.types import TypeDecorator, TypeEngine

MOST_KEPT = 1000
"""Damaged records that are remembered; a process may watch a damaged state for days."""

_FOUND: dict[str, None] = {}
_LOCK = threading.Lock()
_NUMBERS = frozenset({"seconds", "bytes", "exit_code", "n"})
_TEXTS = frozenset({"tree", "failure", "stage", "message", "why", "same_as", "unlisted", "unshown"})


class Unreadable:
    """Stands for text that is not JSON."""


def from_json(text: str | bytes) -> Any:
    """The value of a JSON column."""
    try:
        return json.loads(text)
    except ValueError:
        return Unreadable()


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


class Number(TypeDecorator[Any]):
    """A column of numbers, read as such: SQLite takes, and gives back, anything."""

    impl = Float
    cache_ok = True

    def __init__(self, kind: TypeEngine[Any], where: str, nullable: bool) -> None:
        super().__init__()
        self.kind = kind
        self.where = where
        self.nullable = nullable

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column's own type."""
        return dialect.type_descriptor(self.kind)

    def process_result_value(self, value: Any, _dialect: Dialect) -> Any:
        """The number; none, or zero where there must be one, for anything else."""
        if value is None or isinstance(value, int | float):
            return value
        note(f"{self.where}: not a number")
        return None if self.nullable else 0


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


def sweep_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a sweep; JSON that cannot be read is empty."""
    told = dict(values)
    for name in ("settings", "selection"):
        where = f"sweep {told['stamp']}: {name}"
        if told[name] is None:
            note(where)
        told[name] = mapping(told[name], where) or {}
    return told
