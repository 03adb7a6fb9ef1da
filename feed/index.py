"""The sweep index: one file that says what a batch is made of, published last.

A consumer asks for a stamp and gets from here every cell with its package, version and tree
digest. The same outcome always gives the same bytes: no times, cells in the order of their ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from typing import Any

from feed.errors import Corrupt
from feed.rules import path_problem
from matrix.status import Status

INDEX_FILE = "index.json"
FORMAT = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")
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

    @property
    def available(self) -> bool:
        """Whether there is something to pull."""
        return self.tree is not None and self.status in {Status.PUBLISHED, Status.UNCHANGED}


@dataclass(frozen=True, slots=True)
class SweepIndex:
    """All cells of a batch."""

    stamp: str
    cells: tuple[IndexCell, ...]

    def to_json(self) -> bytes:
        """The bytes of `index.json`."""
        cells = [asdict(cell) for cell in sorted(self.cells)]
        value = {"format": FORMAT, "stamp": self.stamp, "cells": cells}
        return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, where: str = INDEX_FILE) -> SweepIndex:
        """Read an index that somebody else wrote; `Corrupt` names what is wrong with it."""
        try:
            value = json.loads(data)
        except ValueError as error:
            raise _corrupt(where, f"not JSON: {error}") from error
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            found = value.get("format") if isinstance(value, dict) else type(value).__name__
            raise _corrupt(where, f"format {found!r}, this modelmill reads {FORMAT}")
        stamp, cells = value.get("stamp"), value.get("cells")
        if not isinstance(stamp, str) or not isinstance(cells, list):
            raise _corrupt(where, "no stamp or no list of cells")
        read = tuple(_cell(item, f"{where}, cell {number}") for number, item in enumerate(cells))
        if len({cell.id for cell in read}) < len(read):
            raise _corrupt(where, "a cell is listed twice")
        return cls(stamp, read)

    def folders(self) -> Mapping[str, PurePosixPath]:
        """Where each cell goes when a selection is pulled, by cell id.

        The target names the folder; where several cells of one package share it (precisions,
        or all models in one package), the version does. It depends on the whole index only, so
        pulling more later never moves a folder.
        """
        counts: dict[tuple[str, str], int] = {}
        for cell in self.cells:
            key = cell.package, cell.target
            counts[key] = counts.get(key, 0) + 1
        return {
            cell.id: PurePosixPath(
                cell.package,
                cell.target if counts[cell.package, cell.target] == 1 else cell.version,
            )
            for cell in self.cells
        }


def _cell(item: object, where: str) -> IndexCell:
    if not isinstance(item, dict):
        raise _corrupt(where, "not an object")
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(IndexCell)):
        value = item.get(name)
        if not isinstance(value, str) and not (name == "tree" and value is None):
            raise _corrupt(where, f"{name!r} is {value!r}")
        values[name] = value
    problems = list(_problems(values))
    if problems:
        raise _corrupt(where, "; ".join(problems))
    values["status"] = Status(values["status"])
    return IndexCell(**values)


def _problems(values: Mapping[str, Any]) -> Iterable[str]:
    for name in ("package", "version"):  # a pull makes folders of these names
        if "/" in values[name] or path_problem(values[name]):
            yield f"{name} {values[name]!r}"
    if not _WORD.fullmatch(values["target"]):
        yield f"target {values['target']!r}"
    if values["status"] not in set(Status):
        yield f"status {values['status']!r}"
    if values["tree"] is not None and not _SHA256.fullmatch(values["tree"]):
        yield f"tree {values['tree']!r}"


def _corrupt(where: str, what: str) -> Corrupt:
    return Corrupt(f"{where} is not a sweep index: {what}")
