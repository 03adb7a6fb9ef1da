"""The store's folder: how it is recognized, and the small writes that must be all or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from machine.disk import reason
from machine.files import replace_file
from workers.errors import StoreError
from workers.store.aside import Aside

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
    if any(
        entry.name != "gate.lock" and not entry.name.startswith(half) for entry in root.iterdir()
    ):
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
        raise StoreError(
            f"{root} has no {TAG} of modelmill: nothing is removed there",
            hint="check --store",
        )


def write_record(path: Path, data: bytes, root: Path, scratch: Path, aside: Aside) -> None:
    """Write a file below `root`, which is the store's; what stands in its way is put aside."""
    try:
        replace_file(path, data, beside=scratch)
    except OSError:
        if not aside.make_way(path, root):
            raise
        replace_file(path, data, beside=scratch)
