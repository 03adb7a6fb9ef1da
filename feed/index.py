"""The sweep index: one file that says what a batch is made of, published last.

A consumer asks for a stamp and gets from here every cell with its package, version and tree
digest. The same outcome always gives the same bytes: no times, cells in the order of their ids.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from feed.errors import Corrupt
from matrix.cellid import parse
from matrix.codec import from_versioned, to_json
from matrix.digest import SHA256
from matrix.errors import UsageError
from matrix.paths import path_problem
from matrix.slugs import slug
from matrix.status import Status

INDEX_FILE = "index.json"
FORMAT = 1

_WORD = re.compile(r"[a-z0-9][a-z0-9_.+-]*")


@dataclass(frozen=True, slots=True, order=True)
class IndexCell:
    """How one cell of the batch ended, and under which name its content is in the feed."""

    id: str
    model: str
    task: str
    target: str
    """With `+PROFILE` for a compiled cell."""
    precision: str
    status: Status
    package: str
    version: str
    tree: str | None
    """None: nothing was published for it."""
    members: tuple[str, ...] = ()
    """Of a context group: the cells that it holds, compiled into one context."""

    @property
    def available(self) -> bool:
        """Whether there is something to pull."""
        return self.tree is not None and self.status in {Status.PUBLISHED, Status.UNCHANGED}

    def folder(self, *, task: bool = False) -> PurePosixPath:
        """Where it goes when a selection is pulled: the package, and in it the target with what
        the version adds to both (a precision, or the model where one package holds all).

        `task`: and the task, which every version names.
        """
        target, _plus, profile = self.target.partition("+")
        added = self.version.partition(f"-{slug(target)}-")[2].removesuffix(f"-{slug(profile)}")
        words = added.split("-")
        package = f"-{self.package}"
        ends = (n for n in range(len(words), 0, -1) if package.endswith("-".join(["", *words[:n]])))
        named = next(ends, 0)
        rest = "-".join(words[named:])
        if named and not task:
            rest = rest.removeprefix(slug(self.task)).strip("-")
        return PurePosixPath(self.package, "-".join(filter(None, (self.target, rest))))


@dataclass(frozen=True, slots=True)
class SweepIndex:
    """All cells of a batch."""

    stamp: str
    cells: tuple[IndexCell, ...]

    def to_json(self) -> bytes:
        """The bytes of `index.json`."""
        cells = to_json(sorted(self.cells))
        for cell in cells:
            if not cell["members"]:
                del cell["members"]
        value = {"format": FORMAT, "stamp": self.stamp, "cells": cells}
        return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, where: str = INDEX_FILE) -> SweepIndex:
        """Read an index that somebody else wrote; `Corrupt` names what is wrong with it."""
        try:
            index = from_versioned(data, cls, FORMAT)
            if problems := [text for cell in index.cells for text in _problems(cell)]:
                raise ValueError("; ".join(problems))
            if len({cell.id for cell in index.cells}) < len(index.cells):
                raise ValueError("a cell is listed twice")
        except ValueError as error:
            raise Corrupt(f"{where} is not a sweep index: {error}") from error
        return index

    def folders(self) -> Mapping[str, PurePosixPath]:
        """Where each cell goes when a selection is pulled, by cell id. Of several tasks of a model
        in one package, the folders name the task; nothing else in the index changes a name."""
        plain = {cell.id: cell.folder() for cell in self.cells}
        counts = Counter(plain.values())
        return {
            cell.id: cell.folder(task=True) if counts[plain[cell.id]] > 1 else plain[cell.id]
            for cell in self.cells
        }


def _problems(cell: IndexCell) -> Iterator[str]:
    for name in (cell.package, cell.version):  # a pull makes folders of these names
        if "/" in name or path_problem(name):
            yield f"{cell.id}: {name!r} cannot name a folder"
    if not _WORD.fullmatch(cell.target):
        yield f"{cell.id}: target {cell.target!r}"
    for member in cell.members:
        try:
            parse(member)
        except UsageError as error:
            yield f"{cell.id}: member {error.message}"
    if cell.tree is not None and not SHA256.fullmatch(cell.tree):
        yield f"{cell.id}: tree {cell.tree!r}"
