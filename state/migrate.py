"""Gives a database the schema of this modelmill when it is opened, or refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, text
from sqlalchemy.engine import URL

from machine.locks import locked
from machine.waits import WaitedTooLong, WaitRules
from state import version
from state.database import Database
from state.errors import StateError, StateUnavailable
from state.file import BUSY_SECONDS, check_pages, is_fresh
from state.schema import metadata

if TYPE_CHECKING:
    from alembic.config import Config

_ADVISORY_KEY = 0x6D6D696C  # any number, the same for every modelmill


def prepare(database: Database, url: URL) -> None:
    """Check the database and run missing migrations, in one process only."""
    if not database.sqlite:
        if not version.is_current(database):
            with database.write() as connection:
                lock = text("SELECT pg_advisory_xact_lock(:key)")
                connection.execute(lock, {"key": _ADVISORY_KEY})
                _upgrade(connection)
        return
    path = Path(url.database or "")
    if not is_fresh(path) and version.is_current(database):
        check_pages(database)
        return
    with _alone(path):
        _use_wal(database)
        with database.write() as connection:
            _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    """Make the tables, or run the missing migrations: none, if another process did it while this
    one waited."""
    if not inspect(connection).has_table(version.VERSION_TABLE):
        metadata.create_all(connection, checkfirst=False)
        versions = Table(version.VERSION_TABLE, MetaData(), Column("version_num", String(32)))
        versions.create(connection)
        connection.execute(versions.insert(), {"version_num": version.HEAD})
        return
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, version.HEAD)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(version.MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


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
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f"{path.name}.lock"), WaitRules(BUSY_SECONDS)):
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
