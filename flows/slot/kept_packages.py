"""Package folders that stay on this machine for inspection, within a share of the disk budget."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from machine.folders import remove_tree
from matrix.digest import BUILD_RECORD, MANIFEST
from workers.build.built import Built

SHARE = 4
"""Kept packages may take one SHARE-th of the disk budget."""
RECORDS = {MANIFEST, BUILD_RECORD}


def keep(built: Built, dest: Path, root: Path, budget: int = 0) -> Path:
    """Move a package to `dest`, replacing an earlier one of the same name.

    Over budget, the oldest packages lose their model files; their records always stay.
    """
    remove_tree(dest)
    kept = built.move_to(dest)
    if budget:
        trim(root, budget // SHARE)
    return kept


def kept_bytes(root: Path) -> int:
    """Bytes of all kept packages: they count towards the disk budget."""
    return _size(root)


def trim(root: Path, limit: int) -> list[Path]:
    """Strip the oldest packages below `root` down to their records; returns which."""
    folders = sorted(
        {path.parent for path in root.glob(f"*/*/{MANIFEST}")},
        key=lambda folder: folder.stat().st_mtime,
    )
    sizes = {folder: _size(folder) for folder in folders}
    total, stripped = sum(sizes.values()), []
    for folder in folders:
        if total <= limit:
            break
        if _strip(folder):
            stripped.append(folder)
        total -= sizes[folder]
    return stripped


def _strip(folder: Path) -> bool:
    gone = [path for path in folder.iterdir() if path.name not in RECORDS]
    for path in gone:
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink()
    return bool(gone)


def _size(folder: Path) -> int:
    total = 0
    for place, _folders, names in os.walk(folder):  # another slot may remove files meanwhile
        for name in names:
            with suppress(OSError):
                total += Path(place, name).stat().st_size
    return total
