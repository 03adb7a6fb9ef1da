"""The state as the other rooms see it: one object with everything on it, safe for threads.

Opening one gives a database the schema of this modelmill, or refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from machine.installation import install
from machine.locks import locked
from machine.waits import WaitedTooLong, WaitRules
from state import reading
from state.database import IMPATIENT, Database, Patience
from state.errors import StateError, StateUnavailable
from state.file import BUSY_SECONDS, check_pages, is_fresh
from state.leases import Leases
from state.measurements import Measuring
from state.reading import StateReader
from state.recording import Recording
from state.schema import metadata
from state.sweeps import Sweeps
from state.tunings import Tuning

_ADVISORY_KEY = 0x6D6D696C  # any number, the same for every modelmill


def prepare(database: Database, url: URL) -> None:
    """Check the database and run missing migrations, in one process only."""
    if not database.sqlite:
        if not reading.is_current(database):
            with database.write() as connection:
                lock = text("SELECT pg_advisory_xact_lock(:key)")
                connection.execute(lock, {"key": _ADVISORY_KEY})
                _upgrade(connection)
        return
    path = Path(url.database or "")
    if not is_fresh(path) and reading.is_current(database):
        check_pages(database)
        return
    with _alone(path):
        _use_wal(database)
        with database.write() as connection:
            _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    """Make the tables, or run the missing migrations: none, if another process did it while this
    one waited."""
    if not inspect(connection).has_table(reading.VERSION_TABLE):
        metadata.create_all(connection, checkfirst=False)
        versions = Table(reading.VERSION_TABLE, MetaData(), Column("version_num", String(32)))
        versions.create(connection)
        connection.execute(versions.insert(), {"version_num": reading.HEAD})
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(reading.MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, reading.HEAD)


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


_URL = re.compile(r"^([a-z0-9+]+)://", re.IGNORECASE)
_POSTGRESQL = {"postgres", "postgresql", "postgresql+psycopg"}


class State(Sweeps, Leases, Recording, Measuring, Tuning, StateReader):
    """An open state; `close` it, or use it in a `with` block."""

    def patient(self, patience: Patience) -> State:
        """The same state, whose calls wait through an outage of the database."""
        return State(self.database.with_patience(patience))

    @property
    def at_once(self) -> State:
        """The same state, whose calls report an outage at once."""
        return self.patient(IMPATIENT)


def open_state(where: str | Path, *, patience: Patience = IMPATIENT) -> State:
    """Open, and where needed create or migrate, a SQLite file or a PostgreSQL database by URL.

    Raises `StateError` for anything that is not a state of this or an older modelmill, and
    leaves it as it is. `patience` holds for opening and for every call of the state.
    """
    url = _url(where)
    state = patience.through(lambda: _open(url))
    return state.patient(patience)


def _open(url: URL) -> State:
    try:
        database = Database(url)
    except ModuleNotFoundError as error:
        raise StateError(
            "a state on PostgreSQL needs the psycopg driver",
            hint=install("postgres"),
        ) from error
    try:
        prepare(database, url)
    except BaseException:
        database.close()
        raise
    return State(database)


def _url(where: str | Path) -> URL:
    scheme = _URL.match(where) if isinstance(where, str) else None
    if scheme is None:
        return URL.create("sqlite", database=str(Path(where).expanduser().absolute()))
    if scheme[1].lower() not in _POSTGRESQL:
        raise StateError(
            f"{scheme[1]}:// cannot hold the state",
            hint="give --state a file path or a postgresql:// URL",
        )
    try:
        return make_url(str(where)).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError) as error:
        # The text of the URL is not repeated: it may hold a password.
        raise StateError("the postgresql:// URL of the state cannot be read") from error
