"""Statements worked out once, and from then on only given their values.

SQLAlchemy finds the text of a statement anew at every execution, which takes several times as
long as SQLite needs to carry it out. For the few that run several times a cell that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy import Connection, CursorResult, Dialect
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler


class Prepared:
    """A statement for one database. `columns`: of an INSERT, those that get values."""

    def __init__(
        self, statement: ClauseElement, dialect: Dialect, columns: Collection[str] | None = None
    ) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns and list(columns))
        assert isinstance(compiled, SQLCompiler)
        self.text = str(compiled)
        self._order = tuple(compiled.positiontup or ()) if compiled.positional else None
        self._given = dict(compiled.params)
        self._convert = _converters(compiled, dialect)

    def run(self, connection: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        """Execute it; values that it does not know are left out."""
        return connection.exec_driver_sql(self.text, self.bound(values))

    def bound(self, values: Mapping[str, Any]) -> Any:
        """The values as the driver takes them beside the text."""
        bound = {name: values.get(name, given) for name, given in self._given.items()}
        for name, convert in self._convert.items():
            bound[name] = convert(bound[name])
        return bound if self._order is None else tuple([bound[name] for name in self._order])


def _converters(compiled: SQLCompiler, dialect: Dialect) -> dict[str, Callable[[Any], Any]]:
    """What makes of a value what the driver takes, where that is not the value itself."""
    found = {
        name: bind.type.dialect_impl(dialect).bind_processor(dialect)
        for bind, name in compiled.bind_names.items()
    }
    return {name: convert for name, convert in found.items() if convert is not None}
