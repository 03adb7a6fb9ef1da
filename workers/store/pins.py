"""Pins: since when the builds of living processes use the store. A pin ends with its process.

A lookup touches its record, so whatever was used since the oldest living pin may still be needed
by the build that set it. That takes one empty file for each build, and no list of keys that would
have to be complete.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from machine.scratch import Scratch

FOLDER = "pins"
NEVER = 2**32
"""Later than any use: a pin of this time keeps nothing."""


class Pins:
    """The pins of this process; they lie in its working folder and are removed with it."""

    def __init__(self, scratch: Scratch) -> None:
        self._root = scratch.root
        self._folder = scratch.folder / FOLDER
        self._folder.mkdir(exist_ok=True)
        self._numbers = itertools.count()
        self._spare: list[Path] = []

    def set(self) -> Path:
        """Pin what is used from now on; returns the pin, for `drop`."""
        try:
            pin = self._spare.pop()
        except IndexError:
            pin = self._folder / str(next(self._numbers))
        pin.touch()
        return pin

    def drop(self, pin: Path) -> None:
        """End a pin; its file is kept for the next one."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(pin, (NEVER, NEVER))
            self._spare.append(pin)

    def horizon(self) -> float:
        """The time of the oldest pin of any living process (call `sweep_dead` before)."""
        oldest = float("inf")
        for pin in self._root.glob(f"*/{FOLDER}/*"):
            with contextlib.suppress(FileNotFoundError):
                oldest = min(oldest, pin.stat().st_mtime)
        return oldest
