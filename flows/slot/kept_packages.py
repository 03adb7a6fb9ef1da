"""Package folders that stay on this machine for inspection, within a share of the disk budget."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from machine.files import remove, remove_tree
from matrix.digest import BUILD_RECORD, MANIFEST
from workers.build.built import Built

SHARE = 4
"""Kept packages may take one SHARE-th of the disk budget."""
RECORDS = {MANIFEST, BUILD_RECORD}


def keep(built: Built, package: str, version: str, root: Path, budget: int = 0) -> Path:
    """Move a package below `root`, replacing an earlier one of the same name.

    Over budget, the oldest packages lose their model files; their records always stay.
    """
    dest = root / package / version
    remove_tree(dest)
    built.move_to(dest)
    if budget:
        trim(root, budget // SHARE)
    return dest


def trim(root: Path, limit: int) -> None:
    """Strip the oldest packages below `root` down to their records."""
    folders = sorted(
        {path.parent for path in root.glob(f"*/*/{MANIFEST}")},
        key=lambda folder: folder.stat().st_mtime,
    )
    sizes = {folder: kept_bytes(folder) for folder in folders}
    total = sum(sizes.values())
    for folder in folders:
        if total <= limit:
            break
        for path in folder.iterdir():
            if path.name not in RECORDS:
                remove(path)
        total -= sizes[folder]


def kept_bytes(folder: Path) -> int:
    """Bytes of the kept packages below a folder: they count towards the disk budget."""
    total = 0
    for place, _folders, names in os.walk(folder):  # another slot may remove files meanwhile
        for name in names:
            with suppress(OSError):
                total += Path(place, name).stat().st_size
    return total
