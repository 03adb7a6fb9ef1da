"""The files of the ledger: one for each participant, which it alone writes.

A file is named after the process that writes it, so what a dead one reserved is void whatever its
file says, and it is replaced as a whole. A damaged file counts as empty until its owner writes it
again, which happens with whatever it reserves or gives back next.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from machine.claims import claim, owner_of
from machine.files import replace_file
from machine.locks import locked
from machine.waits import WaitRules

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


@dataclass(frozen=True, slots=True)
class _Written:
    """What a file holds."""

    held: dict[str, Holding]
    waiting: list[Ticket]


class Entries:
    """The folder, as one participant sees it."""

    def __init__(self, root: Path | None = None) -> None:
        self.folder = (root or default_folder()) / "ledger"
        self.own = Entry(claim(), os.getpid())

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.own.name}.json"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock under which participants reserve."""
        if not self.folder.is_dir():
            _make_private(self.folder)
        with locked(self.folder / "lock", WaitRules(LOCK_LIMIT)):
            yield

    def write(self) -> None:
        """Tell the others of our own; nothing held and nothing waited for takes no file."""
        own = self.own
        if own.held or own.waiting:
            data = msgspec.json.encode(_Written(own.held, own.waiting))
            replace_file(self._file, data)
        else:
            self._file.unlink(missing_ok=True)

    def look(self) -> None:
        """Show the others that we still wait."""
        try:
            os.utime(self._file)
        except FileNotFoundError:
            self.write()

    def others(self) -> list[Entry]:
        """What all other living participants hold and wait for. Call it inside `alone`."""
        now, entries = time.time(), []
        for path in list(self.folder.iterdir()):
            owner = owner_of(path.name)
            if owner is None or path == self._file:
                continue
            if owner.is_dead():
                path.unlink(missing_ok=True)
            elif not path.name.startswith("."):  # which is still being written
                entry = Entry(path.name, owner.pid)
                with suppress(OSError, ValueError):
                    written = msgspec.json.decode(path.read_bytes(), type=_Written)
                    entry.held, entry.waiting = written.held, written.waiting
                    entry.silent = abs(now - path.stat().st_mtime) > SILENT_AFTER
                entries.append(entry)
        return entries


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
    folder.mkdir(mode=0o700, exist_ok=True)
