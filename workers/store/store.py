"""The store as the pipeline sees it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from machine.files import place, remove_tree, unlink
from machine.locks import locked, take
from machine.scratch import Scratch, sweep_dead
from machine.waits import WITHOUT_LIMIT, WaitRules
from matrix.digest import FileEntry, LocalFile
from workers.errors import CorruptBlob, wait_failures
from workers.store.actions import Action, Actions, GcReport, collect
from workers.store.blobs import Blobs
from workers.store.folder import (
    Notes,
    Records,
    make_folder,
    make_way,
    open_folder,
    require_store,
    usable,
)

GATE = "gate.lock"
PINS = "pins"
LONGEST_SLEEP = 0.5
"""Seconds between two looks at a lock that is held while a stage runs."""
SHARED = 3
"""Letters of a key that choose its lock: 4,096 files at most, and few keys that share one."""
FOLDERS = ("blobs", "actions", "notes", "tmp", "locks")


@dataclass(frozen=True, slots=True)
class Usage:
    """What the store holds."""

    actions: int
    blobs: int
    size: int


def usage_of(root: Path) -> Usage:
    """Count what a store holds. Nothing is written, so that read-only media will do."""
    require_store(root)
    with usable(root):
        sizes = [size for _sha, size in Blobs(root / "blobs").all()]
        actions = sum(1 for _ in Actions(root / "actions", root / "tmp").all())
    return Usage(actions, len(sizes), sum(sizes))


class Store:
    """A content store in a folder; safe to share between threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with usable(root):
            open_folder(root)
            self._heal()
            sweep_dead(root / "tmp")
            self.scratch = Scratch(root / "tmp")
            """Working folders on the store's volume, so that outputs can be moved in."""
            (self.scratch.folder / PINS).mkdir()
        self._pins = itertools.count()
        self.notes = Notes(Records(root / "notes", self.scratch.folder))
        self._blobs = Blobs(root / "blobs")
        self._actions = Actions(root / "actions", self.scratch.folder)

    def _heal(self) -> None:
        """Remove whatever stands where a folder of the store belongs, or a gate."""
        for name in FOLDERS:
            make_folder(self.root / name)
        for gate in (self.root / GATE, self.root / "tmp" / GATE):
            make_way(gate, self.root)

    def lookup(self, key: str) -> Action | None:
        """What a stage with this key made, if all of it is still here."""
        action = self._actions.read(key)
        if action is None or not all(self._blobs.has(file) for file in action.files):
            return None
        self._actions.touch(key)
        return action

    def ingest(self, folder: Path, action: Action) -> Action:
        """Take in every file below `folder` (which is emptied) and record the action.

        `action.files` is filled in here. A file that cannot be read is an error: no record.
        """
        with ExitStack() as stack:
            hashed = self._blobs.read_in(
                folder, lambda: stack.enter_context(self.scratch.borrow("ingest"))
            )
            record = replace(action, files=tuple(file.entry for file in hashed))
            self.take_in(record, hashed)
        return record

    def take_in(self, action: Action, hashed: Iterable[LocalFile]) -> Action | None:
        """Move flushed files in and record the action; None: other blobs of it are not here."""
        with locked(self.root / GATE):
            for file in hashed:
                self._blobs.move_in(file)
            if not all(map(self._blobs.has, action.files)):
                return None
            self._actions.write(action.key, asdict(action))
        return action

    def has(self, entry: FileEntry) -> bool:
        """Whether a blob of this size is here."""
        return self._blobs.has(entry)

    def materialize(self, files: Iterable[FileEntry], dest: Path, *, alone: bool = False) -> None:
        """Place files below `dest`, every blob checked; `alone` as in `machine.files.place`.

        Raises `CorruptBlob` after the blob has been removed and what names it dropped.
        """
        for file in files:
            try:
                self._blobs.check(file)
                place(self.source(file), dest / file.path, alone=alone)
            except CorruptBlob:
                self._drop(file)
                raise

    def source(self, entry: FileEntry) -> Path:
        """Where the bytes of an entry are in the store (to be read only)."""
        return self._blobs.path(entry.sha256)

    def distrust(self, files: Iterable[FileEntry]) -> None:
        """Hash these blobs anew; what is not what it should be is dropped."""
        for file in files:
            try:
                self._blobs.check(file, afresh=True)
            except CorruptBlob:
                self._drop(file)

    def _drop(self, file: FileEntry) -> None:
        """Remove bytes that are not what their digest says, and forget who made them; not those
        that somebody has brought since they were found bad, or missing."""
        with locked(self.root / GATE):
            with suppress(CorruptBlob):
                self._blobs.check(file, afresh=True)
                return
            self._blobs.remove(file.sha256)
            for _used, key in list(self._actions.all()):
                record = self._actions.read(key)
                if record and any(one.sha256 == file.sha256 for one in record.files):
                    self._actions.remove(key)

    @contextmanager
    def lock(self, key: str, rules: WaitRules = WITHOUT_LIMIT) -> Iterator[None]:
        """Only one holder of a key in all processes that share the store.

        Keys that begin alike share a file and only wait for each other, so hold one at a time. The
        files stay, so that nobody can hold the lock on one that has just been removed. Raises
        `BuildFailed` or `Cancelled`.
        """
        path = self.root / "locks" / f"{key[:SHARED]}.lock"
        make_way(path, self.root)
        what = f"another build that runs the same stage and holds {path}"
        with wait_failures("store"):
            lock = take(path, rules, what=what, longest_sleep=LONGEST_SLEEP)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep every action that is looked up or made meanwhile, and its bytes.

        A lookup touches its record, so whatever was used since the oldest living pin may still be
        needed by the build that set it. That takes one empty file for each build, which goes with
        the folder of its process, and no list of keys that would have to be complete.
        """
        pin = self.scratch.folder / PINS / str(next(self._pins))
        pin.touch()
        try:
            yield
        finally:
            unlink(pin)

    def used(self) -> bool:
        """Whether anybody's build, in any process, keeps what it uses now."""
        return self.oldest_use() < math.inf

    def oldest_use(self) -> float:
        """When the oldest of those builds began; infinity: there is none."""
        oldest = math.inf
        for pin in self.scratch.root.glob(f"*/{PINS}/*"):
            with suppress(FileNotFoundError):
                oldest = min(oldest, pin.stat().st_mtime)
        return oldest

    def gc(self, budget: float = 0, unused_since: float = 0.0) -> GcReport:
        """Evict least recently used actions that nobody has pinned, down to `budget` bytes, and
        those that were not used since then."""
        require_store(self.root)
        sweep_dead(self.root / "tmp")
        with locked(self.root / GATE):
            return collect(self._blobs, self._actions, self.oldest_use(), budget, unused_since)

    def clear(self) -> GcReport:
        """Remove everything that no living process uses."""
        report = self.gc(-1)  # also records whose bytes are gone, or which name none
        remove_tree(self.root / "notes")
        return report

    def size(self) -> int:
        """Bytes of all blobs; looks at every one of them."""
        return sum(size for _sha, size in self._blobs.all())

    def close(self) -> None:
        """Drop this process's pins and working folders."""
        self.scratch.close()
