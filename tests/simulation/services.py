"""Database and feed as processes of the world reach them: away at times, lossy, and late."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, event

from feed.errors import OutcomeUnknown, Unavailable
from feed.interface import LocalFile, Progress, Published
from matrix.digest import FileEntry
from state.database import Database, Patience
from state.errors import StateUnavailable
from state.records import Lease
from state.state import State
from tests.fakes.feed import MemoryFeed
from tests.simulation.world import Program, World

T = TypeVar("T")

LOST = 0.01
"""The share of calls whose request or reply is lost."""


@dataclass(eq=False)
class Service:
    """Something on the network that is away at times."""

    world: World
    away: list[tuple[float, float]] = field(default_factory=list)
    flaky: bool = True

    def is_away(self) -> bool:
        """Whether nobody reaches it now."""
        return any(begin <= self.world.seconds < end for begin, end in self.away)

    def loses(self) -> bool:
        """Whether this request or reply is lost."""
        return self.flaky and self.world.random.random() < LOST


class SimulatedDatabase(Database):
    """One database file, as one process of the world reaches it."""

    service: Service
    seen: Callable[[Database], None]
    """Is called after each change."""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        self._reach()
        with super().read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        self._reach()
        with super().write() as connection:
            yield connection
        if self.service.world.here is not None:
            self.seen(self)
            self.service.world.pause(0.01)
            if self.service.is_away() or self.service.loses():
                raise StateUnavailable("the connection broke after the commit")

    def _reach(self) -> None:
        if self.service.world.here is None:
            return
        self.service.world.pause(0.01)
        if self.service.is_away() or self.service.loses():
            raise StateUnavailable("the database is away")


def follow_clock(database: Database, world: World) -> None:
    """Give SQLite the clock of the world."""

    def connected(connection: sqlite3.Connection, _entry: object) -> None:
        connection.create_function("julianday", 1, lambda _text: world.now() / 86400 + 2440587.5)
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(database.engine, "connect", connected)
    database.engine.dispose()


class SimulatedState(State):
    """The state, which tells which leases reached those who asked for them."""

    taken: set[int]

    def lease(self, *given: Any, **named: Any) -> Lease | None:
        found = super().lease(*given, **named)
        if found is not None:
            self.taken.add(found.token)
        return found


def state_for(
    database: Database,
    service: Service,
    seen: Callable[[Database], None],
    taken: set[int],
    patience: float,
) -> State:
    """The state as a process of the world has it."""
    mine = copy.copy(database)
    mine.__class__ = SimulatedDatabase
    assert isinstance(mine, SimulatedDatabase)
    mine.service, mine.seen = service, seen
    world = service.world

    def wait(seconds: float) -> bool:
        world.pause(seconds)
        return False

    waiting = Patience(wait=wait, seconds=patience, clock=lambda: world.seconds)
    made = SimulatedState(mine.with_patience(waiting))
    made.taken = taken
    return made


class SimulatedFeed(MemoryFeed):
    """Immutable versions behind a network: slow, lossy, and late in what it shows."""

    def __init__(self, service: Service) -> None:
        super().__init__("simulated")
        self.service = service
        self.world = service.world
        self._shown: dict[tuple[str, str], tuple[float, float]] = {}
        """When a version is found by name, and when it is listed."""

    def preflight(self, plan: Sequence[tuple[str, str]] = ()) -> None:
        self._ask(lambda: MemoryFeed.preflight(self, plan))

    def find(self, package: str, version: str) -> Published | None:
        def look() -> Published | None:
            found = MemoryFeed.find(self, package, version)
            late = self._shown.get((package, version), (0.0, 0.0))[0] > self.world.seconds
            return None if late and self.world.here is not None else found

        return self._ask(look)

    def versions(self, package: str, prefix: str = "") -> Iterator[Published]:
        def look() -> list[Published]:
            found = list(MemoryFeed.versions(self, package, prefix))
            if self.world.here is None:
                return found
            self.world.random.shuffle(found)
            return [
                one
                for one in found
                if self._shown[one.package, one.version][1] <= self.world.seconds
            ]

        return iter(self._ask(look))

    def files(self, package: str, version: str) -> tuple[FileEntry, ...]:
        return self._ask(lambda: MemoryFeed.files(self, package, version))

    def publish(
        self,
        package: str,
        version: str,
        files: Sequence[LocalFile],
        description: str,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Published:
        if progress is not None:
            progress(0, 1)
        self.world.pause(self.world.random.uniform(0.5, 8.0))
        if progress is not None:
            progress(1, 2)
        if self.service.is_away() or self.service.loses():
            raise Unavailable("the request was lost")
        done = super().publish(
            package, version, files, description, timeout=timeout, progress=progress
        )
        found = self.world.seconds + self.world.random.choice((0.0, 0.0, 2.0, 5.0))
        self._shown[package, version] = found, found + self.world.random.choice((0.0, 10.0, 90.0))
        self.world.say(f"the feed has {version}")
        self.world.pause(0.1)
        if self.service.is_away() or self.service.loses():
            raise OutcomeUnknown("the reply was lost")
        return done

    def _ask(self, answer: Callable[[], T]) -> T:
        if self.world.here is None:
            return answer()
        self.world.pause(0.05)
        if self.service.is_away() or self.service.loses():
            raise Unavailable("the request was lost")
        result = answer()
        self.world.pause(0.05)
        if self.service.is_away() or self.service.loses():
            raise Unavailable("the reply was lost")
        return result


class Pool:
    """Publishes in tasks of the same process."""

    def __init__(self, world: World, program: Program) -> None:
        self._world = world
        self._program = program

    def submit(self, work: Callable[..., T], *given: Any) -> Future[T]:
        """As an executor does it."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                result = work(*given)
            except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
                done.set_exception(error)
            else:
                done.set_result(result)

        self._world.spawn(self._program, run)
        return done


class Inline:
    """An executor that does its work at once: a listing of several packages."""

    def __init__(self, *_how: object, **_named: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    map = staticmethod(map)
