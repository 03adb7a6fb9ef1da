"""Working folders of a process; the next one removes what a killed one left.

Each owner holds a file lock beside its folder while it lives; the system frees the lock of a
dead process, so a free lock marks a folder that nobody will ever come back to.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from machine.folders import remove_tree
from machine.locks import locked, take, take_now

GATE = "gate.lock"
"""Held while an owner appears and while dead ones are removed, so that neither sees half of it."""


class Scratch:
    """This owner's working folders below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        token = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.folder = root / token
        self._names = itertools.count(1)
        self._spare: dict[str, list[tuple[Path, frozenset[str]]]] = {}
        self._taken: dict[Path, str] = {}
        with locked(root / GATE):
            self._lock = take(root / f"{token}.lock")
            self.folder.mkdir()

    def new_folder(self, name: str = "work") -> Path:
        """A fresh empty folder of this owner."""
        folder = self._path(name)
        folder.mkdir()
        return folder

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}-{next(self._names)}"

    def drop(self, folder: Path) -> None:
        """Remove one of them."""
        self._taken.pop(folder, None)
        remove_tree(folder)

    @contextmanager
    def borrow(self, name: str = "work") -> Iterator[Path]:
        """An empty folder to work in; afterwards its content is gone.

        After a failure the folder itself goes too: something may still write into it.
        """
        folder = self.take(name)
        try:
            yield folder
        except BaseException:
            self.drop(folder)
            raise
        self.give_back(folder)

    def take(self, name: str) -> Path:
        """A folder that was given back, or a new one; always under a new name, since tools may
        remember paths.

        Folders are used again because a file system that creates and removes many takes longer
        and longer to find free entries.
        """
        folder = self._path(name)
        try:
            spare, keep = self._spare.setdefault(name, []).pop()
            spare.rename(folder)
        except (IndexError, OSError):
            folder.mkdir()
        else:
            # A tool may have kept a file open, or remembered the path and written there since.
            if not keep.issuperset(os.listdir(folder)):  # noqa: PTH208 - only names
                remove_tree(folder)
                folder = self.new_folder(name)
        self._taken[folder] = name
        return folder

    def give_back(self, folder: Path, *, keep: Collection[str] = ()) -> None:
        """Empty a folder for its next use, which overwrites the files named in `keep`.

        A second call does no harm.
        """
        name = self._taken.pop(folder, None)
        if name is not None and _emptied(folder, keep):
            self._spare[name].append((folder, frozenset(keep)))

    def close(self) -> None:
        """Remove this owner's folders and its lock."""
        remove_tree(self.folder)
        lock_file = Path(self._lock.lock_file)
        self._lock.release()
        with contextlib.suppress(OSError):
            lock_file.unlink()


def sweep_dead(root: Path) -> list[Path]:
    """Remove the folders of owners that are gone; returns what was removed."""
    if not root.is_dir():
        return []
    removed = []
    with locked(root / GATE):
        # An owner may have died before it made its folder, or after it removed it.
        locks = {path.stem for path in root.glob("*.lock") if path.name != GATE and path.is_file()}
        for token in sorted(locks | {path.name for path in root.iterdir() if path.is_dir()}):
            folder, lock_file = root / token, root / f"{token}.lock"
            lock = take_now(lock_file)
            if lock is None:
                continue
            try:
                remove_tree(folder)
            finally:
                lock.release()
            with contextlib.suppress(OSError):
                lock_file.unlink()
            removed.append(folder)
    return removed


def _emptied(folder: Path, keep: Collection[str]) -> bool:
    """Whether the content of a folder could be removed; if not, the folder is removed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(Path(entry.path))
                elif entry.name not in keep:
                    os.unlink(entry.path)  # noqa: PTH108 - no Path for what is only removed
        return os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    except OSError:
        remove_tree(folder)
        return False
