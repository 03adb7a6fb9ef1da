"""What a build hands to whoever publishes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine.files import hash_file
from machine.folders import remove_tree
from matrix.digest import FileEntry
from workers.build.stages import Rung, StageRun
from workers.errors import StoreError
from workers.store import Store
from workers.verify.ladder.claim import Claim


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file of a package: where it goes and what it must hash to, and where it is."""

    entry: FileEntry
    source: Path


@dataclass(frozen=True, slots=True)
class Built:
    """A package: model files (links into the store), manifest, records, all in one folder."""

    cell_id: str
    folder: Path
    files: tuple[PackageFile, ...]
    tree: str
    manifest: Mapping[str, Any]
    build_record: Mapping[str, Any]
    stages: tuple[StageRun, ...]
    seconds: float
    store: Store
    give_back: Callable[[], None]
    """For the package folder, which may be used again."""
    export_tree: str | None = None
    """Tree digest of the export package that belongs to it."""
    inputs: tuple[FileEntry, ...] = ()
    """What the engine's `inputs` stage made: the input values that verification uses."""
    evidence: tuple[Rung, ...] = ()
    export: tuple[FileEntry, ...] = ()
    """The files of the export that it was made of: what verification compares it with."""
    portable: tuple[FileEntry, ...] = ()
    """Of a compiled cell: the models that were compiled."""
    claim: Claim | None = None
    """What verification holds it to; None: an export."""
    used: ExitStack = field(default_factory=ExitStack, compare=False)
    """Keeps what it was made of in the store."""

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.entry.size for file in self.files)

    def distrust(self) -> bool:
        """Somebody says these bytes are wrong: True if so (then another build makes them anew)."""
        wrong = [file.entry for file in self.files if not _intact(file)]
        self.store.distrust(wrong)
        return bool(wrong)

    def move_to(self, dest: Path) -> Path:
        """Give the package a place of its own, away from the store's links; returns it."""
        if dest.exists():
            raise StoreError(f"{dest} is there already", hint="move it away")
        dest.parent.mkdir(parents=True, exist_ok=True)
        half = dest.with_name(f".{dest.name}.{os.getpid()}")
        remove_tree(half)
        try:
            for file in self.files:  # the folder may hold records of the one before
                target = half / file.entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                # A copy, not a link: nobody may change the store's bytes through a kept package.
                shutil.copyfile(file.source, target)
            half.replace(dest)
        finally:
            remove_tree(half)
        self.release()
        return dest

    def let_go(self) -> None:
        """It is verified: from here on its folder is enough, and the store may evict the rest."""
        self.used.close()

    def release(self) -> None:
        """The local bytes are no longer needed; the store keeps its own."""
        self.let_go()
        self.give_back()


def _intact(file: PackageFile) -> bool:
    try:
        return hash_file(file.source) == (file.entry.sha256, file.entry.size)
    except OSError:
        return False
