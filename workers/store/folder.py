"""The store's folder: how it is recognized, and the small writes that must be all or nothing."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

from workers.errors import StoreError
from workers.files import overwrite
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
    half = f".{TAG}."  # of somebody who was killed when he made the store
    if any(
        entry.name != "gate.lock" and not entry.name.startswith(half) for entry in root.iterdir()
    ):
        raise StoreError(
            f"{root} is not a store: it has files but no {TAG} of ours",
            hint="choose an empty folder with --store",
        )
    write_whole(root / TAG, TEXT.encode(), sync=True)


@contextlib.contextmanager
def usable(root: Path) -> Iterator[None]:
    """What the system refuses while a store is opened, as one line for its user."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"the store {root} cannot be used: {reason}", hint="choose another with --store"
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
        write_whole(path, data, scratch=scratch)
    except OSError:
        if not aside.make_way(path, root):
            raise
        write_whole(path, data, scratch=scratch)


def write_whole(
    path: Path, data: bytes, *, sync: bool = False, scratch: Path | None = None
) -> None:
    """Write a file so that it is there completely or not at all.

    `scratch`: a folder on the same volume, swept for us should we be killed half-way.
    """
    temporary = (scratch or path.parent) / f".{path.name}.{uuid.uuid4().hex[:12]}"
    try:
        overwrite(temporary, data, sync=sync)
        try:
            temporary.replace(path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
