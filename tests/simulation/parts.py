"""What surrounds the product in the world, and fails: database, feed, disk, and who builds."""

from __future__ import annotations

import copy
import os
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest import mock

from sqlalchemy import Connection, event

import machine.files
import workers.store.actions
import workers.store.blobs
from feed.errors import OutcomeUnknown, Unavailable
from feed.interface import LocalFile, Progress, Published
from machine.files import hash_file, remove_tree
from machine.waits import Cancelled
from matrix.digest import FileEntry, tree_digest
from matrix.model import Cell
from state.database import Database, Patience
from state.errors import StateUnavailable
from state.records import Lease
from state.state import State
from tests.fakes.feed import MemoryFeed
from tests.simulation.world import Machine, Program, World
from workers.build.built import Built
from workers.build.stages import StageRun
from workers.errors import CorruptBlob
from workers.host.watch import Watching
from workers.store import Action, Store

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


# Disks


@contextmanager
def watched_disks(world: World) -> Iterator[None]:
    """Note what is synced, and give files the times of the world."""
    flush_file, touch = machine.files.flush_file, workers.store.actions.Actions.touch
    write = workers.store.actions.Actions.write
    path_touch = Path.touch

    def flush(path: Path) -> None:
        flush_file(path)
        if world.here is not None:
            world.here.machine.durable.add(_identity(path))

    def mark(path: Path) -> None:
        with suppress(OSError):
            os.utime(path, (world.mark(),) * 2)

    def touched(actions: workers.store.actions.Actions, key: str) -> None:
        touch(actions, key)
        mark(actions.path(key))

    def written(actions: workers.store.actions.Actions, key: str, value: Any) -> None:
        write(actions, key, value)
        mark(actions.path(key))

    def pinned(path: Path, *given: Any, **named: Any) -> None:
        path_touch(path, *given, **named)
        if world.here is not None:
            mark(path)

    patches: list[tuple[Any, str, Any]] = [
        (os, "fsync", lambda _descriptor: None),  # a crash of the world is none of this machine
        (machine.files, "flush_file", flush),
        (workers.store.blobs, "flush_file", flush),
        (workers.store.actions.Actions, "touch", touched),
        (workers.store.actions.Actions, "write", written),
        (Path, "touch", pinned),
    ]
    with ExitStack() as stack:
        for where, name, new in patches:
            stack.enter_context(mock.patch.object(where, name, new))
        yield


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _blobs(machine_: Machine) -> list[Path]:
    return sorted(path for path in (machine_.disk / "store/blobs").glob("*/*") if path.is_file())


def lose_unsynced(machine_: Machine, chance: random.Random) -> None:
    """The power fails: what was not synced is empty, or as long as it was and full of zeros."""
    machine_.intact = False
    records = sorted((machine_.disk / "store/actions").glob("*/*.json"))
    for path in [*_blobs(machine_), *records]:
        if _identity(path) in machine_.durable or chance.random() < 0.5:
            continue
        size = path.stat().st_size if chance.random() < 0.5 else 0
        _replace(path, b"\0" * size)


def rot(machine_: Machine, chance: random.Random) -> None:
    """One blob holds other bytes of the same length."""
    if found := _blobs(machine_):
        path = chance.choice(found)
        machine_.intact = False
        _replace(path, b"r" * path.stat().st_size)


def _replace(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


# Who builds


FILE = "model.onnx"
WEIGHTS = b"weights" * 50


def content_of(cell: str) -> bytes:
    """The model that every correct build of a cell or export makes."""
    return f"model of {cell}\n".encode() * 4


def tree_of(cell: str, folder: Path) -> str:
    """The digest of that package."""
    path = folder / FILE
    path.write_bytes(content_of(cell))
    return tree_digest([hash_entry(path)])


def hash_entry(path: Path) -> FileEntry:
    """A file by its name and bytes."""
    sha256, size = hash_file(path)
    return FileEntry(path.name, size, sha256)


class SimulatedBuilder:
    """Builds with the real store: an export for the model, then a file for the cell."""

    def __init__(
        self,
        world: World,
        program: Program,
        store: Store,
        work: Path,
        lost: Callable[[Machine, str], None],
    ) -> None:
        self._world = world
        self._lost = lost
        self._program = program
        self._store = store
        self._work = work

    def begin_model(self) -> None:
        """Nothing is kept between models."""

    def close(self) -> None:
        """Nothing to end."""

    def build(
        self, cell: Cell, watching: Watching, *, export_version: str | None = None, **_how: object
    ) -> Built:
        """A package whose model has the content of the cell."""
        named = f"{cell.model.name}@export" if export_version else cell.id
        with ExitStack() as used:
            used.enter_context(self._store.in_use())
            made = self._action(f"export {cell.model.name}", watching, lambda: WEIGHTS)
            model = partial(self._model, made, named)
            result = self._action(f"model {named}", watching, model)
            folder = self._work / str(self._world.mark())
            for _ in range(3):
                try:
                    self._store.materialize(result.files, folder)
                    break
                except (CorruptBlob, OSError) as error:
                    self._lost(self._program.machine, str(error))
                    result = self._action(f"model {named}", watching, model)
            self._world.pause(0.5)
            files = tuple(LocalFile(entry, folder / entry.path) for entry in result.files)
            run = StageRun("model", "", result.key, {}, False, 1.0, 1, 1)
            return Built(
                cell_id=named,
                folder=folder,
                files=files,
                tree=tree_digest(result.files),
                manifest={"stages": []},
                build_record={"stages": []},
                stages=(run,),
                seconds=1.0,
                store=self._store,
                used=used.pop_all(),
            )

    def _action(self, subject: str, watching: Watching, make: Callable[[], bytes]) -> Action:
        key = subject.encode().hex()[:64].ljust(64, "0")
        if (found := self._store.lookup(key)) is not None:
            return found
        for _ in range(4):
            self._world.pause(self._world.random.uniform(0.5, 10.0))
            if watching.cancel is not None and watching.cancel.is_set():
                raise Cancelled("the lease is gone")
            watching.progress(subject)
        with self._store.scratch.borrow("stage") as folder:
            (folder / FILE).write_bytes(make())
            self._world.pause(0.05)
            action = Action(key, {}, (), {}, {}, 1.0, 1, subject)
            return self._store.ingest(folder, action)

    def _model(self, made: Action, named: str) -> bytes:
        """The stage reads the export, as the store gives it out."""
        folder = self._work / f"input-{self._world.mark()}"
        try:
            self._store.materialize(made.files, folder)
            right = (folder / FILE).read_bytes() == WEIGHTS
        except (CorruptBlob, OSError) as error:
            self._lost(self._program.machine, str(error))
            right = True  # the real stage would be run again after the export
        remove_tree(folder)
        return content_of(named) if right else b"garbage"


class Believing:
    """Verifies and attests nothing."""

    def verify(self, built: Built, *_how: object) -> Built:
        return built

    def attest(self, built: Built, _cell: Cell) -> Built:
        return built

    def close(self) -> None:
        """Nothing to end."""
