"""What does not belong in a store is put aside: what should be there is then made anew.

A folder where a file belongs, a file where a folder belongs, bytes that are not what their name
says. All of it is kept for whoever wants to know why, until `modelmill store clear`.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from machine.folders import remove_tree


class Aside:
    """The quarantine of a store."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: Path) -> None:
        """Take a file or a folder out of the way; one that is gone already is no error."""
        if os.path.lexists(self.root) and not self.root.is_dir():
            self.root.unlink()
        self.root.mkdir(exist_ok=True)
        target = self.root / path.name
        if os.path.lexists(target):
            target = self.root / f"{path.name}.{uuid.uuid4().hex[:8]}"
        with suppress(FileNotFoundError):
            path.rename(target)

    def make_folder(self, path: Path) -> None:
        """Make sure of a folder in the store."""
        try:
            path.mkdir(exist_ok=True)
        except FileExistsError:
            self.put(path)
            path.mkdir(exist_ok=True)

    def make_way(self, file: Path, below: Path) -> bool:
        """Put aside what keeps `file`, somewhere below `below`, from being written.

        False: nothing does, so an error has another cause.
        """
        for folder in reversed([parent for parent in file.parents if below in parent.parents]):
            if os.path.lexists(folder) and not folder.is_dir():
                self.put(folder)
                return True
        if file.is_dir():
            self.put(file)
            return True
        return False

    def clear(self) -> None:
        """Forget what was put aside."""
        remove_tree(self.root)
