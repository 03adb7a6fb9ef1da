"""Temporary tables through which many rows come in: two statements instead of one per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from sqlalchemy import Column, Connection, Float, MetaData, String, Table, Text, insert

_CHUNK = 20_000
_metadata = MetaData()


def _temporary(name: str, *columns: Column[Any]) -> Table:
    return Table(name, _metadata, *columns, prefixes=["TEMPORARY"])


cells = _temporary(
    "incoming_cell",
    Column("cell", String, primary_key=True),
    Column("model", String, nullable=False),
    Column("target", String, nullable=False),
    Column("precision", String, nullable=False),
    Column("package", String, nullable=False),
    Column("version", String, nullable=False),
    Column("skip", Text),
)
"""The cells of a plan."""

seen = _temporary(
    "incoming_seen",
    Column("cell", String, primary_key=True),
    Column("tree", String, nullable=False),
    Column("version", String, nullable=False),
    Column("published_at", Float),
)
"""What a listing of the feed says."""

names = _temporary("incoming_name", Column("cell", String, primary_key=True))
"""Just cells."""


@contextmanager
def loaded(
    connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]
) -> Iterator[None]:
    """The table, filled, for the length of a block."""
    table.create(connection)
    rows = iter(rows)
    while chunk := list(islice(rows, _CHUNK)):
        connection.execute(insert(table), chunk)
    yield
    # Not after an error: the transaction, and the table with it, is rolled back then.
    table.drop(connection)
