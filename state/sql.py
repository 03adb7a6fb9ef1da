"""The one SQL of the state: its statements by name, as SQLite or PostgreSQL understands them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from state.text import to_json

Row = Mapping[str, Any]
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_WORD = re.compile(r"\{(\w+) ?([^{}]*)\}")


class Rows(Protocol):
    """A database that answers queries."""

    label: str
    """What messages call this database; holds no password."""

    @property
    def sqlite(self) -> bool: ...

    def fetch(self, query: str, **values: Any) -> list[Row]:
        """The rows of a query with `:names`, and words in braces as in `statements.sql`."""

    def close(self) -> None: ...


@cache
def statements() -> Mapping[str, str]:
    """The statements of `statements.sql` by their names."""
    text = Path(__file__).with_name("statements.sql").read_text("utf-8")
    _, *found = _NAME.split(text)
    bodies = (_COMMENT.sub("", body).strip() for body in found[1::2])
    return dict(zip(found[::2], bodies, strict=True))


@cache
def spoken(query: str, *, sqlite: bool) -> str:
    """A query as one of the databases understands it; see `statements.sql` for what it may hold."""

    def word(found: re.Match[str]) -> str:
        name, more = found.groups()
        if name == "now" and sqlite:
            return "((julianday('now') - 2440587.5) * 86400.0)"
        if name == "now":
            return "extract(epoch from clock_timestamp())::float8"
        if name == "each" and sqlite:
            return f"(SELECT value FROM json_each(:{more}))"  # noqa: S608 - names a parameter
        if name == "each":
            return f"(SELECT jsonb_array_elements_text(CAST(:{more} AS jsonb)))"
        if name == "postgresql":
            return "" if sqlite else more
        return spoken(statements()[name], sqlite=sqlite)

    return _WORD.sub(word, query)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a query as both drivers take them: mappings and lists as JSON."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return to_json(value)
    return value
