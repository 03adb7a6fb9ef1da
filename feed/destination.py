"""Receives the files of a package: safe paths only, and no partial file under its final name.

The names in a package were chosen by whoever published it. They are checked by the same rules
as on the way in, and the folders on the way are checked for links that lead elsewhere.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from feed.checked import Meter, write_checked
from feed.errors import UnsafePath, local_errors
from feed.interface import Progress
from feed.rules import path_problems
from machine.files import long_path
from machine.processes import claim
from matrix.digest import FileEntry

PART = ".modelmill-part-"
"""Prefix of the names of files that are still being written."""


class Destination:
    """A folder that receives the given files."""

    def __init__(
        self, dest: Path, entries: Iterable[FileEntry], progress: Progress | None = None
    ) -> None:
        expected = tuple(entries)
        problems = path_problems(entry.path for entry in expected)
        if problems:
            raise UnsafePath("the package holds unsafe file names: " + "; ".join(problems))
        self._dest = long_path(dest)
        self._meter = Meter(sum(entry.size for entry in expected), progress)

    def receive(self, entry: FileEntry, blocks: Iterable[bytes]) -> Path:
        """Write one file, check it, then give it its final name."""
        with local_errors(self._dest):
            target = self._target(PurePosixPath(entry.path))
            temp = self._dest / f"{PART}{claim()}"
            try:
                write_checked(blocks, entry, temp, self._meter.moved)
                temp.replace(target)
            finally:
                temp.unlink(missing_ok=True)
        return target

    def adopt(self, entry: FileEntry, checked: Path) -> None:
        """Give a file its final name that was checked elsewhere on the same file system."""
        with local_errors(self._dest):
            checked.replace(self._target(PurePosixPath(entry.path)))

    def _target(self, path: PurePosixPath) -> Path:
        folder = self._dest
        folder.mkdir(parents=True, exist_ok=True)
        for part in path.parts[:-1]:
            folder /= part
            if _is_link(folder):
                raise UnsafePath(f"{folder} is a link: {path} would leave {self._dest}")
            folder.mkdir(exist_ok=True)
        return folder / path.name


def _is_link(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if sys.platform == "win32":
        return found.st_reparse_tag in {
            stat.IO_REPARSE_TAG_SYMLINK,
            stat.IO_REPARSE_TAG_MOUNT_POINT,
        }
    return stat.S_ISLNK(found.st_mode)
