"""Pins: from when on living processes have been at work. A pin dies with its process.

A look-up touches its record, so whatever has been used since the oldest living pin may still be
needed by the one who set it. One empty file per build is all that takes, and no list of keys that
would have to be complete.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from machine.scratch import Scratch

FOLDER = "pins"
NEVER = 2**32
"""A time beyond all that is used: a pin of that time holds nothing."""


class Pins:
    """The pins of this process; they lie in its working folder, so they are swept with it."""

    def __init__(self, scratch: Scratch) -> None:
        self._root = scratch.root
        self._folder = scratch.folder / FOLDER
        self._folder.mkdir(exist_ok=True)
        self._numbers = itertools.count()
        self._spare: list[Path] = []

    def set(self) -> Path:
        """Pin what will be used from now on; the answer is what takes the pin away again."""
        try:
            pin = self._spare.pop()
        except IndexError:
            pin = self._folder / str(next(self._numbers))
        pin.touch()
        return pin

    def drop(self, pin: Path) -> None:
        """Take a pin away: it is kept for the next one, and until then pins nothing."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(pin, (NEVER, NEVER))
            self._spare.append(pin)

    def horizon(self) -> float:
        """The time of the oldest pin of any living process (the dead are swept before)."""
        oldest = float("inf")
        for pin in self._root.glob(f"*/{FOLDER}/*"):
            with contextlib.suppress(FileNotFoundError):
                oldest = min(oldest, pin.stat().st_mtime)
        return oldest
