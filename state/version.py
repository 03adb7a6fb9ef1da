"""Which schema a database has, and whether this modelmill can use it."""

from __future__ import annotations

from pathlib import Path

from state.errors import StateError
from state.rows import Rows

HEAD = "0004"
"""The newest migration; opening a database at this revision needs no Alembic."""

VERSION_TABLE = "modelmill_schema"
"""Not Alembic's default name: Prefect's own tables may live in the same PostgreSQL database."""

MIGRATIONS = Path(__file__).with_name("migrations")

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
_VISIBLE = f"SELECT '{VERSION_TABLE}' AS name WHERE to_regclass('{VERSION_TABLE}') IS NOT NULL"


def is_current(rows: Rows) -> bool:
    """Whether the schema is current. Raises for a database of another program or a newer schema."""
    tables = [str(row["name"]) for row in rows.fetch(_TABLES if rows.sqlite else _VISIBLE)]
    if VERSION_TABLE not in tables:
        if tables:
            raise StateError(
                f"{rows.label} is a database of another program (it has {min(tables)!r})",
                hint="it was left as it is; choose another file with --state",
            )
        return False
    found = rows.fetch(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
    revision = str(found[0]["version_num"]) if found else "none"
    if revision == HEAD:
        return True
    known = {path.stem.partition("_")[0] for path in MIGRATIONS.glob("versions/*.py")}
    if revision not in known:
        raise StateError(
            f"the state {rows.label} was written by a newer modelmill (schema {revision}, "
            f"this one knows {HEAD})",
            hint="upgrade modelmill; the file was left as it is",
        )
    return False
