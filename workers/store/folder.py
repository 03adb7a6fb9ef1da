"""The store's folder: how it is recognized, and small JSON records that are all or nothing.

Each record holds the digest of its text: a damaged record does not count, whatever it looks like.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from machine.disk import reason
from machine.files import remove, replace_file, unlink
from matrix.digest import value_digest
from workers.errors import StoreError


class Records:
    """The records below a folder of the store."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._store = root.parent
        self.root = root
        self._scratch = scratch

    def path(self, name: str) -> Path:
        """Where a record is."""
        return self.root / f"{name}.json"

    def read(self, name: str) -> Any | None:
        """A record; None: there is none that can be read."""
        try:
            found = json.loads(self.path(name).read_bytes())
            if _digest(found["value"]) == found["sha256"]:
                return found["value"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return None

    def write(self, name: str, value: Any) -> None:
        """Write a record; what stands in its way is removed.

        Not synced: a power cut may cost the record, and a half-written one does not count.
        """
        # Read back first: the digest is of what a reader gets (names of fields are text then).
        plain = json.loads(json.dumps(value))
        data = json.dumps({"sha256": _digest(plain), "value": plain}, sort_keys=True).encode()
        path = self.path(name)
        try:
            replace_file(path, data, beside=self._scratch)
        except OSError:
            if not make_way(path, self._store):
                raise
            replace_file(path, data, beside=self._scratch)

    def remove(self, name: str) -> None:
        """Forget a record."""
        path = self.path(name)
        try:
            unlink(path)
        except OSError:
            if not make_way(path, self._store):
                raise


class Notes:
    """Values that save work and may be lost (verification results, last keys)."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def read(self, kind: str, name: str) -> Any | None:
        """A note, or None."""
        return self._records.read(f"{kind}/{value_digest(name)}")

    def write(self, kind: str, name: str, value: Any) -> None:
        """Keep a note; a full disk may refuse it, which costs work later and nothing else."""
        with suppress(OSError):
            self._records.write(f"{kind}/{value_digest(name)}", value)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


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
    if _has_content(root):
        raise StoreError(
            f"{root} is not a store: it has files but no {TAG} of ours",
            hint="choose an empty folder with --store",
        )
    replace_file(root / TAG, TEXT.encode(), sync=True)


def _has_content(root: Path) -> bool:
    """Whether a folder holds more than locks, empty folders and half a tag: processes leave those
    that were at work while somebody removed their store, or that were killed while they made it."""
    for folder, below, names in os.walk(root):
        links = (name for name in below if Path(folder, name).is_symlink())
        harmless = (".lock", f".{TAG}.")
        if any(links) or any(not n.endswith(harmless[0]) and harmless[1] not in n for n in names):
            return True
    return False


@contextmanager
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
