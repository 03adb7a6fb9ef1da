"""A built package, as it is verified and published: its stage runs, and the rungs it climbed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine.files import copy_file, hash_file, move, remove_tree
from matrix.digest import FileEntry, LocalFile
from matrix.verification import Rung
from workers.build.claim import Claim
from workers.errors import StoreError
from workers.store import Store


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a cell: whether it was reused, and its costs."""

    stage: str
    component: str
    key: str
    parts: Mapping[str, Any]
    reused: bool
    seconds: float
    """In this build; almost none if reused."""
    bytes: int
    peak_memory: int
    """In the run that made the bytes."""


_DOING = {
    "export": "exporting",
    "inputs": "making inputs",
    "optimize": "optimizing",
    "rewrites": "finding rewrites",
    "quantize": "quantizing",
    "share": "sharing weights",
    "compile": "compiling",
}


def doing(stage: str, component: str = "") -> str:
    """A running stage as people read it: `quantizing decoder`."""
    return f"{_DOING.get(stage, stage)} {component}".rstrip()


@dataclass(frozen=True, slots=True)
class Built:
    """A package: model files (links into the store), manifest, records, all in one folder."""

    cell_id: str
    folder: Path
    files: tuple[LocalFile, ...]
    tree: str
    manifest: Mapping[str, Any]
    build_record: Mapping[str, Any]
    stages: tuple[StageRun, ...]
    seconds: float
    store: Store
    inputs: tuple[FileEntry, ...] = ()
    """The outputs of the `inputs` stage: the input values that verification uses."""
    evidence: tuple[Rung, ...] = ()
    export: tuple[FileEntry, ...] = ()
    """The files of its export: verification compares the package with them."""
    portable: tuple[FileEntry, ...] = ()
    """Of a compiled cell: the models that were compiled."""
    claim: Claim | None = None
    """What verification checks; None for an export."""
    used: ExitStack = field(default_factory=ExitStack, compare=False)
    """Keeps its inputs in the store."""

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.entry.size for file in self.files)

    def distrust(self) -> bool:
        """Check bytes that a feed refused; True if they are wrong: a rebuild makes new ones."""
        wrong = [file.entry for file in self.files if not _intact(file)]
        self.store.distrust(wrong)
        return bool(wrong)

    def move_to(self, dest: Path) -> Path:
        """Copy the package to a place of its own, independent of the store; returns it."""
        if dest.exists():
            raise StoreError(f"{dest} is there already", hint="move it away")
        dest.parent.mkdir(parents=True, exist_ok=True)
        half = dest.with_name(f".{dest.name}.{os.getpid()}")
        remove_tree(half)
        try:
            for file in self.files:
                # A copy, not a link: nobody may change the store's bytes through a kept package.
                copy_file(file.source, half / file.entry.path)
            move(half, dest)
        finally:
            remove_tree(half)
        self.release()
        return dest

    def let_go(self) -> None:
        """Let the store evict the inputs: after verification the folder is enough."""
        self.used.close()

    def release(self) -> None:
        """Give up the local bytes; the store keeps its own."""
        self.let_go()
        remove_tree(self.folder)


def _intact(file: LocalFile) -> bool:
    try:
        return hash_file(file.source) == (file.entry.sha256, file.entry.size)
    except OSError:
        return False
