"""The state for those who only read it: status, plans, reports, comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from state.errors import OlderSchema, StateError
from state.file import StateFile, check_pages, is_fresh
from state.measurements import Measurements
from state.queries import Queries
from state.sql import Rows
from state.tunings import Tunings


class StateReader(Queries, Measurements, Tunings):
    """An open state that answers; `close` it, or use it in a `with` block."""

    @property
    def label(self) -> str:
        """What to call this state in a message; holds no password."""
        return self._rows.label

    def close(self) -> None:
        """Close the connections."""
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def read_state(where: Path) -> StateReader:
    """Open a SQLite file without writing anything.

    Raises `StateError` for anything that is not a state of this modelmill, and leaves it as it is.
    """
    path = where.expanduser().absolute()
    if not path.exists():
        raise StateError(f"there is no state at {path}", hint="run a sweep first, or check --state")
    fresh = is_fresh(path)
    rows = StateFile(path)
    try:
        if fresh or not is_current(rows):
            raise OlderSchema(
                f"the state {path} is empty or was written by an older modelmill",
                hint="modelmill resume brings it up to date where it can be written",
            )
        check_pages(rows)
    except BaseException:
        rows.close()
        raise
    return StateReader(rows)


HEAD = "0006"
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
            f"the state {rows.label} has the schema {revision}, which this modelmill does not know "
            f"(it knows {HEAD})",
            hint="upgrade modelmill, or choose another state; this one was left as it is",
        )
    return False
