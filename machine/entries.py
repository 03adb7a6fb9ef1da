"""The files of the ledger: one for each participant, which it alone writes.

A file is named after the process that writes it, so what a dead one reserved is void whatever its
file says, and it is replaced as a whole. A damaged file counts as empty until its owner writes it
again, which happens with whatever it reserves or gives back next.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine.files import read_whole, replace_file
from machine.folders import remove
from machine.locks import locked
from machine.processes import Process, this_host

VARIABLE = "MODELMILL_MACHINE"
"""Names another folder: for tests, and where /tmp cannot be used."""
LOCK_LIMIT = 60.0
SILENT_AFTER = 10.0
"""Seconds; whoever waits looks several times a second unless it is stopped or hangs."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What somebody holds of some resources."""

    what: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ticket:
    """A place in the queue for some resources."""

    number: int
    what: str
    resources: frozenset[str]


@dataclass(slots=True)
class Entry:
    """All that one participant holds and waits for."""

    name: str
    pid: int
    held: dict[str, Holding] = field(default_factory=dict)
    waiting: list[Ticket] = field(default_factory=list)
    silent: bool = False
    """It waits, and has not looked for so long that nobody waits behind it."""

    def to_json(self) -> bytes:
        """As it is written."""
        held = {key: [one.what, dict(one.amounts)] for key, one in self.held.items()}
        waiting = [[one.number, one.what, sorted(one.resources)] for one in self.waiting]
        return json.dumps({"held": held, "waiting": waiting}).encode()

    def fill(self, data: bytes) -> None:
        """Read what was written; raises `ValueError`, `TypeError` and the like for damage."""
        value: Any = json.loads(data)
        self.held = {
            str(key): Holding(str(what), {str(name): int(size) for name, size in amounts.items()})
            for key, (what, amounts) in value["held"].items()
        }
        self.waiting = [
            Ticket(int(number), str(what), frozenset(map(str, resources)))
            for number, what, resources in value["waiting"]
        ]


class Entries:
    """The folder, as one participant sees it."""

    def __init__(self, root: Path | None = None) -> None:
        host = hashlib.sha256(this_host().encode()).hexdigest()[:12]
        self.folder = (root or default_folder()) / host
        me = Process.current()
        self.own = Entry(f"{me.pid}-{me.started}-{uuid.uuid4().hex[:8]}", me.pid)

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.own.name}.json"

    def others(self) -> list[Entry]:
        """What all other living participants hold and wait for. Call it inside `alone`."""
        return list(self._read())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock under which participants reserve; whatever stands in its place goes."""
        lock = self.folder / "lock"
        if not self.folder.is_dir():
            _make_private(self.folder)
        elif lock.is_dir():
            remove(lock)
        with locked(lock, limit=LOCK_LIMIT):
            yield

    def write(self) -> None:
        """Tell the others of our own; nothing held and nothing waited for takes no file."""
        own = self.own
        if not (own.held or own.waiting):
            self._file.unlink(missing_ok=True)
            return
        try:
            replace_file(self._file, own.to_json())
        except (IsADirectoryError, PermissionError):  # Windows says the second
            if not self._file.is_dir():
                raise
            remove(self._file)
            replace_file(self._file, own.to_json())

    def look(self) -> None:
        """Show the others that we still wait."""
        try:
            os.utime(self._file)
        except FileNotFoundError:
            self.write()

    def _read(self) -> Iterator[Entry]:
        now = time.time()
        with os.scandir(self.folder) as files:
            found = [(one.name, one.path) for one in files if one.name != "lock"]
        for name, path in found:
            entry = _entry_of(name)
            if entry is None or name == self._file.name:
                continue
            if entry.pid < 0:
                with suppress(OSError):
                    remove(Path(path))
                continue
            with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                entry.fill(read_whole(path))
                entry.silent = abs(now - os.stat(path).st_mtime) > SILENT_AFTER  # noqa: PTH116
            yield entry


def _entry_of(name: str) -> Entry | None:
    """The participant that a file is named after, with the pid -1 if it has ended."""
    parts = name.lstrip(".").removesuffix(".json").split("-")
    if len(parts) != 3 or not parts[0].isdigit():
        return None
    dead = Process(this_host(), int(parts[0]), parts[1]).is_dead()
    if name.startswith("."):  # what was being written; only a dead process leaves it
        return Entry(name, -1) if dead else None
    return Entry(name, -1 if dead else int(parts[0]))


def default_folder() -> Path:
    """One for all processes of this user, whatever their folders for temporary files are."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "modelmill" / "machine"
    return Path("/tmp") / f"modelmill-{os.getuid()}"  # noqa: S108 - TMPDIR differs among slots


def _make_private(folder: Path) -> None:
    """Make a folder of ours; refuse one that another user has put there."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sys.platform != "win32" and folder.parent.lstat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to another user", str(folder.parent))
    if folder.is_file():
        folder.unlink()
    folder.mkdir(mode=0o700, exist_ok=True)
