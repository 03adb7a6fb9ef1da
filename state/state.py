"""The state as the other rooms see it: one object with everything on it, safe for threads."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from state.database import IMPATIENT, Database, Patience
from state.errors import StateError
from state.leases import Leases
from state.measuring import Measuring
from state.migrate import prepare
from state.reading import StateReader
from state.recording import Recording
from state.seeding import Seeding
from state.sweeps import Sweeps
from state.tuning import Tuning

_URL = re.compile(r"^([a-z0-9+]+)://", re.IGNORECASE)
_POSTGRESQL = {"postgres", "postgresql", "postgresql+psycopg"}


class State(Sweeps, Seeding, Leases, Recording, Measuring, Tuning, StateReader):
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
            hint="pip install 'modelmill[postgres]'",
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
            f"{scheme[1]}:// is no place for the state",
            hint="give --state a file path or a postgresql:// URL",
        )
    try:
        return make_url(str(where)).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError) as error:
        # The text of the URL is not repeated: it may hold a password.
        raise StateError("the postgresql:// URL of the state cannot be read") from error
