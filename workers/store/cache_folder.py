"""A cache in a folder that machines share: `ac/ab/KEY` and `cas/ab/SHA256`.

Nothing here removes entries. Each use renews an entry's time of last change, so whoever cares for
the disk can remove what is old, at any time.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from machine.disk import is_full, reason
from machine.files import blocks, is_link, move
from machine.scratch import claimed_folder
from workers.store.cache import CacheRefuses, CacheTrouble, copy, refuse_if_cancelled


class FolderPlace:
    """The entries of a cache in a folder, which is made if the folder around it is there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._root)

    def fetch(self, name: str, out: BinaryIO, most: int, cancel: threading.Event | None) -> bool:
        """Write the bytes of an entry; False: there is none."""
        with self._errors():
            path = self._entry(name)
            if path is None:
                return False
            with suppress(OSError):
                os.utime(path)
        copy(self._blocks(path), out, most, cancel)
        return True

    def has(self, name: str, cancel: threading.Event | None) -> bool:
        """Whether there is such an entry."""
        refuse_if_cancelled(cancel)
        with self._errors():
            return self._entry(name) is not None

    def put(self, name: str, source: Path | bytes, cancel: threading.Event | None) -> None:
        """Keep an entry, whole or not at all."""
        refuse_if_cancelled(cancel)
        with self._errors(writing=True):
            self._root.mkdir(exist_ok=True)
            path = self._path(name)
            self._refuse_links(path)
            with claimed_folder(self._root / "tmp", "put-") as folder:
                half = folder / "entry"
                if isinstance(source, bytes):
                    half.write_bytes(source)
                else:
                    shutil.copyfile(source, half)
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    move(half, path)
                except PermissionError:
                    if not path.is_file():  # else, on Windows, somebody reads it
                        raise

    def _path(self, name: str) -> Path:
        space, _, digest = name.partition("/")
        return self._root / space / digest[:2] / digest

    def _entry(self, name: str) -> Path | None:
        """The file of an entry; None: there is none."""
        if not self._root.is_dir() and not self._root.parent.is_dir():
            raise CacheTrouble(f"there is no folder {self._root.parent}")
        path = self._path(name)
        self._refuse_links(path)
        return path if path.is_file() else None

    def _refuse_links(self, path: Path) -> None:
        """What others have linked leads anywhere."""
        for one in (path, path.parent, path.parent.parent, self._root / "tmp"):
            if is_link(one):
                raise CacheTrouble(f"{one} is a link")

    def _blocks(self, path: Path) -> Iterator[bytes]:
        with self._errors():
            yield from blocks(path)

    @contextmanager
    def _errors(self, *, writing: bool = False) -> Iterator[None]:
        """What the system refuses here. It is not the fault of a build."""
        try:
            yield
        except OSError as error:
            if writing and isinstance(error, PermissionError):
                raise CacheRefuses(reason(error)) from None
            text = "its disk is full" if is_full(error) else reason(error)
            raise CacheTrouble(text) from None
