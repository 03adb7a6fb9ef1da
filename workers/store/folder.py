"""The store's folder: how it is recognized, and the small writes that must be all or nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from machine.disk import reason
from machine.files import remove, replace_file
from workers.errors import StoreError

TAG = "CACHEDIR.TAG"
SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"
NAME = "# modelmill store 1"
TEXT = f"""{SIGNATURE}
{NAME}
# Everything here can be made again; backup tools may skip it. See https://bford.info/cachedir/
"""


def is_store(root: Path) -> bool:
    """Whether a folder carries our tag."""
    try:
        lines = (root / TAG).read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    return lines[:2] == [SIGNATURE, NAME]


def open_folder(root: Path) -> None:
    """Make `root` a store, or check that it is one; never adopts a folder with other things."""
    root.mkdir(parents=True, exist_ok=True)
    if is_store(root):
        return
    half = f".{TAG}."  # of a process that was killed while it made the store
    names = (entry.name for entry in root.iterdir())
    if any(name != "gate.lock" and not name.startswith(half) for name in names):
        raise StoreError(
            f"{root} is not a store: it has files but no {TAG} of ours",
            hint="choose an empty folder with --store",
        )
    replace_file(root / TAG, TEXT.encode(), sync=True)


@contextlib.contextmanager
def usable(root: Path) -> Iterator[None]:
    """What the system refuses while a store is opened, as one line for its user."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the store {root} cannot be used: {reason(error)}", hint="choose another with --store"
        ) from error


def require_store(root: Path) -> None:
    """Refuse to remove anything from a folder that is not ours."""
    if not is_store(root):
        text = f"{root} has no {TAG} of modelmill: nothing is removed there"
        raise StoreError(text, hint="check --store")


def make_folder(path: Path) -> None:
    """Make sure of a folder in the store; a file in its place is removed."""
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError:
        remove(path)
        path.mkdir(exist_ok=True)


def make_way(file: Path, below: Path) -> bool:
    """Remove what keeps `file`, somewhere below `below`, from being written: a folder in its
    place, or a file in the place of its folder.

    False: nothing does, so an error has another cause.
    """
    folders = [parent for parent in file.parents if below in parent.parents]
    for path in reversed(folders):
        if os.path.lexists(path) and not path.is_dir():
            remove(path)
            return True
    if file.is_dir():
        remove(file)
        return True
    return False
