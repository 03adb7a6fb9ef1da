"""The folder that the tool publishes: exactly the files to send, checked.

The tool publishes everything in a folder except what its own rules leave out. So it never gets a
folder of others: the files are linked (or copied) into a new one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from feed.azure.options import WORK_VARIABLE
from feed.checked import hash_file
from feed.errors import Corrupt, NoSpace, Unauthorized
from feed.interface import LocalFile
from machine.disk import is_full, reason
from machine.files import place
from machine.scratch import claimed_folder

Stamp = tuple[int, int, int]


@contextlib.contextmanager
def own_folder(folder: Path, variable: str) -> Iterator[None]:
    """Turn an `OSError` in a folder of ours into one line that says how to choose another."""
    try:
        yield
    except OSError as error:
        another = f"set {variable} to a folder that you can write to"
        if is_full(error):
            hint = f"free space there, or {another} on another disk"
            raise NoSpace(f"the disk of {folder} is full", hint=hint) from error
        raise Unauthorized(f"cannot write to {folder}: {reason(error)}", hint=another) from error


@contextlib.contextmanager
def work_folder(work: Path) -> Iterator[Path]:
    """A private folder for one run of the tool."""
    with contextlib.ExitStack() as stack:
        with own_folder(work, WORK_VARIABLE):
            folder = stack.enter_context(claimed_folder(work, "run-", for_tools=True))
        yield folder


class Stage:
    """Files laid out for the tool."""

    def __init__(self, root: Path, files: Sequence[LocalFile]) -> None:
        self.root = root
        self._files = files
        self._stamps: dict[Path, Stamp] = {}

    def fill(self) -> None:
        """Link or copy every file, and check each byte against its digest on the way."""
        with own_folder(self.root.parent.parent, WORK_VARIABLE):
            self.root.mkdir()
            for file in self._files:
                target = self.root / file.entry.path
                _place(file, target)
                self._stamps[target] = _stamp(target)

    def check_untouched(self) -> None:
        """Check that nobody wrote to the files while the tool read them."""
        for path, stamp in self._stamps.items():
            if _stamp(path) != stamp:
                raise Corrupt(
                    f"{path.relative_to(self.root).as_posix()} was changed while it was published",
                    hint="do not use that version: sweep again with another --stamp",
                )


def _place(file: LocalFile, target: Path) -> None:
    """Link or copy a file and check its bytes."""
    entry = file.entry
    try:
        place(file.source.resolve(), target)
    except (FileNotFoundError, PermissionError) as error:
        raise Corrupt(f"{entry.path}: cannot read {file.source}: {reason(error)}") from error
    if (found := hash_file(target, entry.path)) != entry:
        raise Corrupt(
            f"{entry.path}: expected {entry.size} bytes, sha256 {entry.sha256}; "
            f"found {found.size} bytes, sha256 {found.sha256}"
        )


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
