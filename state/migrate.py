"""Migrates a database to the schema of this modelmill when it is opened, or refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy.engine import URL

from machine.locks import locked
from machine.waits import WaitedTooLong
from state.database import BUSY_SECONDS, Database
from state.errors import StateError, StateUnavailable
from state.schema import HEAD, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).with_name("migrations")

_MAGIC = b"SQLite format 3\0"
_CHECKED_BYTES = 16 * 2**20
"""Larger files would slow down `status`; their damage shows when it is read."""
_ADVISORY_KEY = 0x6D6D696C  # any number, the same for every modelmill


def prepare(database: Database, url: URL, *, reading: bool = False) -> None:
    """Check the database and run missing migrations, in one process only.

    `reading`: a SQLite file that needs a migration is refused instead.
    """
    if not database.sqlite:
        with database.read() as connection:
            if _is_current(connection, database):
                return
        with database.write() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_KEY})
            _upgrade(connection)
        return
    path = Path(url.database or "")
    fresh = _examine(path)
    if not fresh:
        with database.read() as connection:
            if _is_current(connection, database):
                if path.stat().st_size <= _CHECKED_BYTES:
                    _check_pages(connection, database)
                return
    if reading:
        raise StateError(
            f"the state {database.label} is empty or was written by an older modelmill",
            hint="modelmill resume brings it up to date where it can be written",
        )
    with _alone(path):
        _use_wal(database)
        with database.write() as connection:
            _upgrade(connection)


def _is_current(connection: Connection, database: Database) -> bool:
    """Whether the schema is current. Raises for a database of another program or a newer schema."""
    found = inspect(connection)
    if not found.has_table(VERSION_TABLE):
        foreign = found.get_table_names() if database.sqlite else []
        if foreign:
            raise StateError(
                f"{database.label} is a database of another program (it has {foreign[0]!r})",
                hint="it was left as it is; choose another file with --state",
            )
        return False
    revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
    if revision == HEAD:
        return True
    if revision is not None and revision not in _known():
        raise StateError(
            f"the state {database.label} was written by a newer modelmill (schema {revision}, "
            f"this one knows {HEAD})",
            hint="upgrade modelmill; the file was left as it is",
        )
    return False


def _upgrade(connection: Connection) -> None:
    """Run the missing migrations: none, if another process did it while this one waited."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _known() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _examine(path: Path) -> bool:
    """Whether the file has yet to be created; refuses a file that is not a database."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.stat().st_size == 0:
            return True
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise StateError(
            f"the state {path} cannot be opened: {error.strerror}",
            hint="choose a file in a folder that you can write to with --state",
        ) from error
    if head != _MAGIC:
        raise StateError(
            f"{path} is not a modelmill state file",
            hint="it was left as it is; choose another file with --state",
        )
    return False


def _check_pages(connection: Connection, database: Database) -> None:
    verdict = connection.execute(text("PRAGMA quick_check(1)")).scalar()
    if verdict != "ok":
        raise StateError(
            f"the state {database.label} is damaged: {str(verdict).splitlines()[0]}",
            hint="it was left as it is; restore a backup or choose another with --state",
        )


def _use_wal(database: Database) -> None:
    """Let readers work beside one writer; the mode is stored in the file."""
    with database.raw() as connection:  # not possible inside a transaction
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StateError(
            f"the file system of {database.label} cannot hold a shared database",
            hint="choose a file on a local disk with --state",
        )


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    try:
        with locked(path.with_name(f"{path.name}.lock"), limit=BUSY_SECONDS):
            yield
    except WaitedTooLong as error:
        raise StateUnavailable(
            f"another process has been migrating {path} for {BUSY_SECONDS} s", hint="try again"
        ) from error
    except OSError as error:
        raise StateError(
            f"the state {path} cannot be created: {error.strerror}",
            hint="choose a file in a folder that you can write to with --state",
        ) from error
