"""Reading rows: queries in the SQL that SQLite and PostgreSQL share, and rows as our records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from matrix.codec import from_json
from matrix.needs import from_text
from state.damage import damaged, mapping, parsed

T = TypeVar("T")
Row = Mapping[str, Any]

_JSON = frozenset(
    ["settings", "selection", "evidence", "detail", "data", "parts", "protocol", "percentiles"]
)


class Rows(Protocol):
    """A database that answers queries."""

    label: str
    """What messages call this database; holds no password."""

    @property
    def sqlite(self) -> bool: ...

    def fetch(self, query: str, **values: Any) -> list[Row]:
        """The rows of a query with `:names`; the value of `IN :name` is a list."""

    def close(self) -> None: ...


class Part:
    """What the parts of a state share: the database."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @property
    def _now(self) -> str:
        return clock(sqlite=self._rows.sqlite)

    def _select(
        self, table: str, /, columns: str = "*", then: str = "", **wanted: Any
    ) -> list[Row]:
        """The rows of a table that have these values; of a list any, None means any."""
        return self._rows.fetch(f"{selected(table, wanted, columns)} {then}", **wanted)

    def _records(
        self,
        record: type[T],
        table: str,
        key: str,
        /,
        then: str = "",
        columns: str = "*",
        **wanted: Any,
    ) -> list[T]:
        """The same as records; `key`: the column by which messages name a row."""
        return list(records(record, table, key, self._select(table, columns, then, **wanted)))


def clock(*, sqlite: bool) -> str:
    """The database's clock, in seconds since the epoch."""
    if sqlite:
        return "((julianday('now') - 2440587.5) * 86400.0)"
    return "extract(epoch from clock_timestamp())::float8"


def selected(table: str, wanted: Mapping[str, Any], columns: str = "*") -> str:
    """The query for the rows that have these values; of a list any, None means any."""
    conditions = [
        f"{name} {'IN' if isinstance(value, list) else '='} :{name}"
        for name, value in wanted.items()
        if value is not None
    ]
    # Names of tables and columns come from our code, values go beside the query.
    return f"SELECT {columns} FROM {table} WHERE {' AND '.join(conditions) or '1 = 1'}"  # noqa: S608


def texts_in(parameter: str, *, sqlite: bool) -> str:
    """The texts of a list, for `IN`. The list is one parameter, because their number is limited."""
    if sqlite:
        return f"(SELECT value FROM json_each({parameter}))"  # noqa: S608 - names a parameter
    return f"(SELECT jsonb_array_elements_text(CAST({parameter} AS jsonb)))"


def with_lists(
    query: str, values: Mapping[str, Any], *, sqlite: bool
) -> tuple[str, dict[str, Any]]:
    """A query and its values, with each list of texts as one of them."""
    plain = dict(values)
    for name, value in values.items():
        if isinstance(value, list):
            query = re.sub(rf":{name}\b", texts_in(f":{name}", sqlite=sqlite), query)
            plain[name] = json.dumps(value)
    return query, plain


def records(kind: type[T], table: str, key: str, rows: Iterable[Row]) -> Iterator[T]:
    """The rows of a table as records.

    `key`: the column by which messages name a row.
    """
    for row in rows:
        where = f"{table}.{{}} of {row[key]}"
        values: dict[str, Any] = {
            name: mapping(parsed(value), where.format(name)) if name in _JSON else value
            for name, value in row.items()
        }
        if "needs" in values:
            values["needs"] = sorted(from_text(values["needs"]))
        try:
            # SQLite's truth values are numbers.
            yield from_json(values, kind, exact=False, strict=False)
        except ValueError as error:
            raise damaged(f"{table} of {row[key]}: {error}") from error
