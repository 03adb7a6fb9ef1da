"""Working folders of a process; the next one removes what a killed one left.

A single folder has a name that claims it (`claimed_folder`). For many, each owner holds a file lock
beside its folder while it lives; the system frees the lock of a dead process, so a free lock marks
a folder that nobody will ever come back to.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from machine.children import kill_users
from machine.files import long_path, remove, remove_tree
from machine.locks import locked, take, take_now
from machine.processes import abandoned, claim

GATE = "gate.lock"
"""Held while an owner appears and while dead ones are removed, so that neither sees half of it."""


@contextmanager
def claimed_folder(parent: Path, prefix: str, *, for_tools: bool = False) -> Iterator[Path]:
    """A new folder below `parent` that is gone afterwards, unless it gets another name.

    `for_tools`: only programs of ours work in such folders, and those of a dead process are ended.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.iterdir():
        if left.name.startswith(prefix) and abandoned(left):
            if for_tools:
                kill_users(left)
            remove(left)
    folder = long_path(parent / f"{prefix}{claim()}")
    folder.mkdir()
    try:
        yield folder
    finally:
        remove(folder)


class Scratch:
    """This owner's working folders below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        token = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.folder = root / token
        self._names = itertools.count(1)
        with locked(root / GATE):
            self._lock = take(root / f"{token}.lock")
            self.folder.mkdir()

    def new_folder(self, name: str = "work") -> Path:
        """A fresh empty folder of this owner."""
        folder = self.folder / f"{name}-{next(self._names)}"
        folder.mkdir()
        return folder

    @contextmanager
    def borrow(self, name: str = "work") -> Iterator[Path]:
        """An empty folder to work in, removed afterwards."""
        folder = self.new_folder(name)
        try:
            yield folder
        finally:
            remove_tree(folder)

    def close(self) -> None:
        """Remove this owner's folders and its lock."""
        remove_tree(self.folder)
        lock_file = Path(self._lock.lock_file)
        self._lock.release()
        with suppress(OSError):
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
            with suppress(OSError):
                lock_file.unlink()
            removed.append(folder)
    return removed
