"""The store as the pipeline sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from matrix.digest import FileEntry
from workers.errors import CorruptBlob
from workers.scratch import Scratch, remove_tree, sweep_dead
from workers.store.actions import Action, Actions
from workers.store.blobs import Blobs
from workers.store.folder import open_folder, require_store
from workers.store.gc import GcReport, collect
from workers.store.locks import Locks
from workers.store.notes import Notes
from workers.store.pins import NEVER, Pins

GATE = "gate.lock"


@dataclass(frozen=True, slots=True)
class Usage:
    """What the store holds."""

    actions: int
    blobs: int
    size: int
    quarantined: int


class Store:
    """A content store in a folder; safe to share between threads and processes."""

    def __init__(self, root: Path) -> None:
        open_folder(root)
        self.root = root
        sweep_dead(root / "tmp")
        self.scratch = Scratch(root / "tmp")
        """Working folders on the store's volume, so that outputs can be moved in."""
        self.taken_in = 0
        """New bytes that came in through this object."""
        self.notes = Notes(root / "notes", self.scratch.folder)
        self._quarantine = root / "quarantine"
        self._blobs = Blobs(root / "blobs", self._quarantine)
        self._actions = Actions(root / "actions", self.scratch.folder)
        self._pins = Pins(self.scratch)
        self._locks = Locks(root / "locks", root / GATE)

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
            with self._locks.gate():
                for file in hashed:
                    self.taken_in += self._blobs.move_in(file)
                self._actions.write(record)
        return record

    def materialize(self, files: Iterable[FileEntry], dest: Path, *, alone: bool = False) -> None:
        """Place files below `dest`, every blob checked; `alone` as in `links.place`.

        Raises `CorruptBlob` after the blob has been put aside and what names it dropped.
        """
        for file in files:
            try:
                self._blobs.give_out(file, dest / file.path, alone=alone)
            except CorruptBlob:
                self.drop_blob(file.sha256)
                raise

    def source(self, entry: FileEntry) -> Path:
        """Where the bytes of an entry are in the store (to be read only)."""
        return self._blobs.path(entry.sha256)

    def distrust(self, files: Iterable[FileEntry]) -> list[FileEntry]:
        """Hash these blobs anew; what is not what it should be is dropped and returned."""
        bad = []
        for file in files:
            try:
                self._blobs.check(file, afresh=True)
            except CorruptBlob:
                self.drop_blob(file.sha256)
                bad.append(file)
        return bad

    def drop_blob(self, sha256: str) -> None:
        """Put bytes aside that are not what their digest says, and forget who made them."""
        with self._locks.gate():
            self._blobs.put_aside(sha256)
            for _used, key in list(self._actions.all()):
                record = self._actions.read(key)
                if record and any(file.sha256 == sha256 for file in record.files):
                    self._actions.remove(key)

    def lock(self, key: str, cancel: threading.Event | None = None) -> AbstractContextManager[None]:
        """Only one holder of a key in all processes that share the store."""
        return self._locks.hold(key, cancel)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep every action that is looked up or made meanwhile, and its bytes."""
        pin = self._pins.set()
        try:
            yield
        finally:
            self._pins.drop(pin)

    def used(self) -> bool:
        """Whether anybody's build, in any process, keeps what it uses now."""
        return self._pins.horizon() < NEVER

    def gc(self, budget: float = 0, unused_since: float = 0.0) -> GcReport:
        """Evict least recently used actions that nobody has pinned, down to `budget` bytes, and
        those that were not used since then."""
        require_store(self.root)
        sweep_dead(self.root / "tmp")
        with self._locks.gate():
            return collect(self._blobs, self._actions, self._pins.horizon(), budget, unused_since)

    def clear(self) -> GcReport:
        """Remove everything that no living process uses."""
        report = self.gc(0)
        self._blobs.clear_quarantine()
        remove_tree(self.root / "notes")
        return report

    def size(self) -> int:
        """Bytes of all blobs; looks at every one of them."""
        return sum(size for _sha, size in self._blobs.all())

    def usage(self) -> Usage:
        """Counts and bytes."""
        sizes = [size for _sha, size in self._blobs.all()]
        aside = list(self._quarantine.iterdir()) if self._quarantine.is_dir() else []
        quarantined = sum(path.stat().st_size for path in aside)
        return Usage(sum(1 for _ in self._actions.all()), len(sizes), sum(sizes), quarantined)

    def close(self) -> None:
        """Drop this process's pins and working folders."""
        self.scratch.close()
