"""What the participants of the ledger hold and wait for, and what keeps another one waiting.

Each has a file that it alone writes, named after its process, so what a dead one reserved is void
whatever its file says. A file is replaced as a whole; a damaged one counts as empty until its owner
writes it again, which happens with whatever it reserves or gives back next.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from machine.files import replace_file, unlink
from machine.locks import locked
from machine.processes import claim, owner_of
from machine.waits import WaitRules

VARIABLE = "MODELMILL_MACHINE"
"""Names another folder: for tests, and where /tmp cannot be used."""
LOCK_LIMIT = 60.0
SILENT_AFTER = 10.0
"""Seconds; whoever waits looks several times a second unless it is stopped or hangs."""


@dataclass(frozen=True, slots=True)
class Holding:
    """How much a participant holds of some resources."""

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

    name: str = ""
    pid: int = 0
    held: dict[str, Holding] = field(default_factory=dict)
    waiting: list[Ticket] = field(default_factory=list)
    silent: bool = False
    """Whether it has not polled for so long that others no longer queue behind it."""


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
            replace_file(self._file, msgspec.json.encode(own))
        else:
            unlink(self._file)

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
                unlink(path)
            elif not path.name.startswith("."):  # which is still being written
                entry = Entry()
                with suppress(OSError, ValueError):
                    entry = msgspec.json.decode(path.read_bytes(), type=Entry)
                    entry.silent = abs(now - path.stat().st_mtime) > SILENT_AFTER
                entry.name, entry.pid = path.name, owner.pid
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


SHOWN = 3
WHOLE = 1 << 40


@dataclass(frozen=True, slots=True)
class Want:
    """So much of a resource, which is there if all reservations together stay within `room`."""

    resource: str
    amount: int
    room: int | Callable[[], int]
    words: str
    """What is waited for: `2.00 GB of memory`."""
    alone: bool = False
    """Even too much is granted where nobody else holds any."""


DISTURBS = Want("quiet", 1, WHOLE, "the end of a measurement")
"""For work that would disturb a measurement, and may go on beside other such work."""
UNDISTURBED = Want("quiet", WHOLE, WHOLE, "a quiet machine")
"""For a measurement: nothing that disturbs it runs."""


def reserved(resource: str, entries: Sequence[Entry]) -> int:
    """How much of a resource these participants hold."""
    return sum(
        holding.amounts.get(resource, 0) for entry in entries for holding in entry.held.values()
    )


def ahead_of(wants: Sequence[Want], entries: Sequence[Entry], ticket: Ticket | None = None) -> int:
    """How many wait ahead for any of it; without a ticket, all that wait are ahead."""
    resources = {want.resource for want in wants}
    return sum(
        (ticket is None or one.number < ticket.number) and not resources.isdisjoint(one.resources)
        for entry in entries
        if not entry.silent
        for one in entry.waiting
    )


def lacking_of(wants: Sequence[Want], entries: Sequence[Entry]) -> list[Want]:
    """What of it is not there."""
    lacking = []
    for want in wants:
        taken = reserved(want.resource, entries)
        room = want.room if isinstance(want.room, int) else want.room()
        if taken + want.amount > room and not (want.alone and not _holders(want, entries)):
            lacking.append(want)
    return lacking


def _holders(want: Want, entries: Sequence[Entry]) -> list[str]:
    return [
        f"process {entry.pid}{f' ({holding.what})' if holding.what else ''}"
        for entry in entries
        for holding in entry.held.values()
        if want.resource in holding.amounts
    ]


def signs_of(resources: set[str], entries: Sequence[Entry]) -> object:
    """What changes when anybody begins, ends or gives up."""
    held = {
        (entry.name, key)
        for entry in entries
        for key, holding in entry.held.items()
        if not resources.isdisjoint(holding.amounts)
    }
    return held, {one for entry in entries if not entry.silent for one in entry.waiting}


def words_of(wants: Sequence[Want], ahead: int, entries: Sequence[Entry], trouble: str) -> str:
    """What is waited for, and who has it."""
    text = " and ".join(want.words for want in wants)
    holders = list(dict.fromkeys(name for want in wants for name in _holders(want, entries)))
    if holders:
        more = f" and {len(holders) - SHOWN} more" if len(holders) > SHOWN else ""
        text += f", held by {', '.join(holders[:SHOWN])}{more}"
    if ahead:
        text += f", behind {ahead} other{'s' if ahead > 1 else ''}"
    return f"{text}; other processes are not seen: {trouble}" if trouble else text
