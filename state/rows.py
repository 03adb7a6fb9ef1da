"""Reading rows as our records, and what the parts of a state share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from matrix.codec import from_json
from matrix.needs import from_text
from state.damage import damaged, mapping, parsed
from state.errors import LeaseLost
from state.records import Lease
from state.sql import Row, Rows

if TYPE_CHECKING:
    from state.database import Database, Transaction

T = TypeVar("T")

_JSON = frozenset(
    ["settings", "selection", "evidence", "detail", "data", "parts", "protocol", "percentiles"]
)


class Part:
    """What the parts of a state that read share: the database."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def _select(
        self, table: str, /, columns: str = "*", then: str = "", **wanted: Any
    ) -> list[Row]:
        """The rows of a table with these values; a list allows any of its values, None all."""
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


class WritingPart(Part):
    """What the parts of a state that write share: its database with transactions."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database

    def _attempt(self, change: Callable[[Transaction], T], held: Lease | None = None) -> T:
        """Make a change in a transaction of its own; with a lease, only while that is held."""

        def guarded(sql: Transaction) -> T:
            if held is not None:
                check_token(sql, held)
            return change(sql)

        return self.database.attempt(guarded)


def check_token(sql: Transaction, held: Lease) -> None:
    """Raise unless the lease is still held; keeps it so until the end of the transaction."""
    current = sql.run("current_token", **held.work._asdict()).scalar()
    if current != held.token:
        raise LeaseLost(
            f"{held.model} is no longer leased to {held.owner}; its late result was refused",
            hint="another worker took the model over",
        )


def selected(table: str, wanted: Mapping[str, Any], columns: str = "*") -> str:
    """The query for the rows with these values; a list allows any of its values, None all."""
    conditions = [
        f"{name} IN {{each {name}}}" if isinstance(value, list) else f"{name} = :{name}"
        for name, value in wanted.items()
        if value is not None
    ]
    # Names of tables and columns come from our code, values go beside the query.
    return f"SELECT {columns} FROM {table} WHERE {' AND '.join(conditions) or '1 = 1'}"  # noqa: S608


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
