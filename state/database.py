"""The connection to SQLite or PostgreSQL: transactions, retries, the clock, errors in our words."""

from __future__ import annotations

import copy
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, TextClause, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from state.errors import StateError, StateUnavailable, of_sqlite
from state.file import BUSY_SECONDS
from state.sql import Row, plain, spoken

T = TypeVar("T")

RACES = 50
_LASTING = ("authentication", "does not exist", "no pg_hba.conf entry")
_BACK_OFF = {"40001", "40P01"}
"""PostgreSQL: serialization failure, deadlock. The same transaction succeeds when repeated."""

_CUT_OFF = {"25P03", "25P04", "57P01", "57P02", "57P03", "57P05"}
"""PostgreSQL: the server ended this session, or is starting or stopping."""

SILENT_SECONDS = 10
"""A process that is stopped inside a transaction keeps its locks no longer than this."""

_LINK = {
    "connect_timeout": 10,
    # Without these, a call on a line that was cut would wait for a quarter of an hour.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


class Raced(StateUnavailable):
    """Another process was faster; the transaction was rolled back and can be repeated."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Repeats calls while the database is away: a restart must not cost a slot its model.

    What was under way when the connection broke may have been committed or not, so only calls
    that may be made twice go through here.
    """

    wait: Callable[[float], bool]
    """Waits so many seconds; True: stop waiting."""
    seconds: float = 900.0
    clock: Callable[[], float] = time.monotonic
    pause: float = 1.0

    def through(self, call: Callable[[], T]) -> T:
        """Call until it succeeds, somebody asks to stop, or the time is up."""
        deadline = self.clock() + self.seconds
        while True:
            try:
                return call()
            except StateUnavailable:
                if self.clock() > deadline or self.wait(self.pause):
                    raise


IMPATIENT = Patience(wait=lambda _seconds: True)
"""Every error is reported at once."""


class Transaction:
    """What changes the state at once: statements of `statements.sql`, by name."""

    def __init__(self, connection: Connection, *, sqlite: bool) -> None:
        self.sqlite = sqlite
        self._connection = connection

    def run(self, name: str, /, **values: Any) -> CursorResult[Any]:
        """Run a statement."""
        return self._connection.execute(self._named(name), plain(values))

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """The rows that a statement finds."""
        return [dict(row) for row in self.run(name, **values).mappings()]

    def each(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run a statement for each of these rows."""
        if given := [plain(row) for row in rows]:
            self._connection.execute(self._named(name), given)

    def _named(self, name: str) -> TextClause:
        return _clause(f"{{{name}}}", sqlite=self.sqlite)


@cache
def _clause(query: str, *, sqlite: bool) -> TextClause:
    return text(spoken(query, sqlite=sqlite))


class Database:
    """Short transactions on one database; safe to use from several threads."""

    def __init__(self, url: URL, patience: Patience = IMPATIENT) -> None:
        self.sqlite = url.get_backend_name() == "sqlite"
        self.label = url.database or "" if self.sqlite else url.set(query={}).render_as_string()
        self._secret = str(url.password or "")
        self._patience = patience
        self.engine = _engine(url, self.sqlite)
        self._writer = self.engine.execution_options(begin="BEGIN IMMEDIATE")
        # On PostgreSQL every statement sees its own moment anyway; this saves BEGIN and ROLLBACK.
        self._reader = (
            self.engine
            if self.sqlite
            else self.engine.execution_options(isolation_level="AUTOCOMMIT")
        )
        # Threads of one process queue here instead of in SQLite's busy loop, which sleeps.
        self._turn = threading.Lock()

    def with_patience(self, patience: Patience) -> Self:
        """The same connections, with other patience."""
        other = copy.copy(self)
        other._patience = patience
        return other

    def close(self) -> None:
        """Close all connections that are not in use."""
        self.engine.dispose()

    def fetch(self, query: str, **values: Any) -> list[Row]:
        """The rows of a query with `:names`; waits through an outage."""
        asked = _clause(query, sqlite=self.sqlite), plain(values)

        def call() -> list[Row]:
            with self.read() as connection:
                return [dict(row) for row in connection.execute(*asked).mappings()]

        return self._patience.through(call)

    def attempt(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a write transaction; repeats it after a lost race or an outage."""
        return self._patience.through(lambda: self._raced(work))

    def _raced(self, work: Callable[[Transaction], T]) -> T:
        for _ in range(RACES):
            try:
                with self.write() as connection:
                    return work(Transaction(connection, sqlite=self.sqlite))
            except Raced:
                continue
        raise StateUnavailable(f"the state {self.label} is too busy", hint="try again")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """For a few queries; with SQLite a consistent view. Fails at once in an outage."""
        with self._translated(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: all of it, or nothing. Fails at once in an outage."""
        with self._translated():
            if not self.sqlite:
                with self._writer.begin() as connection:
                    yield connection
                return
            with self._turn, self._writer.begin() as connection:
                yield connection

    @contextmanager
    def raw(self) -> Iterator[sqlite3.Connection]:
        """SQLite's own connection, for what cannot run inside a transaction."""
        with self._translated():
            try:
                with closing(self.engine.raw_connection()) as pooled:
                    assert isinstance(pooled.driver_connection, sqlite3.Connection)
                    yield pooled.driver_connection
            except sqlite3.Error as error:
                raise DBAPIError(None, None, error) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise  # a constraint stopped a bug of ours: the traceback is wanted
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) in _BACK_OFF:
                raise Raced(f"two writers of {self.label} met", hint="try again") from error
            raise self.in_our_words(error) from error
        except UnicodeDecodeError as error:  # names in a damaged schema
            raise of_sqlite(self.label, "malformed text in it") from error

    def in_our_words(self, error: DBAPIError) -> StateError:
        lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        reason = lines[0]
        if self._secret:
            reason = reason.replace(self._secret, "***")
        if self.sqlite:
            return of_sqlite(self.label, reason)
        message = f"the state {self.label} cannot be used: {reason}"
        cut = error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _CUT_OFF
        if cut:
            return StateUnavailable(message, hint="try again; what was recorded is safe")
        lasting = any(text in reason for text in _LASTING)
        passing = isinstance(error, OperationalError) and not lasting
        kind = StateUnavailable if passing else StateError
        return kind(message, hint="check that the server runs and the URL is right")


def _engine(url: URL, is_sqlite: bool) -> Engine:
    if not is_sqlite:
        engine = create_engine(
            url,
            pool_pre_ping=True,
            max_overflow=50,
            connect_args=_LINK,
        )
        event.listen(engine, "connect", partial(_limit, engine.dialect.loaded_dbapi.Error))
        return engine
    engine = create_engine(url, max_overflow=50)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _limit(
    failure: type[Exception], connection: DBAPIConnection, _entry: ConnectionPoolEntry
) -> None:
    with suppress(failure):  # a line that is broken already: its first use reports it
        cursor = connection.cursor()
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{SILENT_SECONDS}s'")
        cursor.close()
        connection.commit()


def _configure(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    assert isinstance(connection, sqlite3.Connection)
    connection.isolation_level = None  # the driver must not begin transactions by itself
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
