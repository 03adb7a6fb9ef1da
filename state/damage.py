"""Damaged records of the state: the first one that a command reads is an error that names it.

A file may be truncated or edited by hand, and a disk may corrupt it. What the state then says of a
sweep cannot be believed, so nothing is left out and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matrix.codec import parse_json
from state.errors import StateError

_NUMBERS = frozenset({"seconds", "bytes", "exit_code", "n"})
_TEXTS = frozenset({"tree", "failure", "stage", "message", "why", "same_as", "unlisted", "unshown"})


def damaged(where: str) -> StateError:
    """The error of a record that cannot be read."""
    return StateError(
        f"the state has a damaged record: {where}",
        hint="restore the state from a backup, or name a new one with --state: a sweep of the same "
        "stamp finds in the feed what it has published",
    )


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Wraps code that reads the contents of a record."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise damaged(where) from error


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
    """A recorded JSON object. `where`: what messages call it."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise damaged(where)
    for name, item in value.items():
        if not _fits(name, item):
            raise damaged(f"{where}: {name}")
    return value


def _fits(name: str, item: Any) -> bool:
    if name in _NUMBERS:
        return item is None or (isinstance(item, int | float) and not isinstance(item, bool))
    return name not in _TEXTS or item is None or isinstance(item, str)


def number(value: Any, where: str) -> float:
    """A number; SQLite takes, and gives back, anything."""
    if isinstance(value, int | float):
        return value
    raise damaged(f"{where}: not a number")
