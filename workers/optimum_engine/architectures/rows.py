"""The rows of `architectures.toml`, ours and those of other packages; read without torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from matrix.extensions import FILE, Extension, extensions
from workers.engine import StageError

TORCHSCRIPT, DYNAMO = "torchscript", "dynamo"
Names = Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Row:
    """How an architecture is exported; the package's docstring describes the keys."""

    package: str
    """Where `module` is."""
    tasks: Sequence[str]
    module: str = ""
    like: str = ""
    inputs: Names = ()
    outputs: Names = ()
    classes: Mapping[str, str] = field(default_factory=dict)
    fixed: bool | Sequence[str] = False
    axes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    exporter: str = TORCHSCRIPT

    def names(self, key: str, task: str) -> Sequence[str]:
        """The inputs or outputs for a task."""
        found: Names = getattr(self, key)
        return found.get(task, ()) if isinstance(found, Mapping) else found

    def is_fixed(self, task: str) -> bool:
        """Whether the trace for a task holds for the sizes of the export only."""
        return self.fixed if isinstance(self.fixed, bool) else task in self.fixed


@cache
def rows() -> Mapping[str, Row]:
    """All rows by architecture. Rows of other packages replace ours."""
    ours = tomllib.loads((Path(__file__).parent / FILE).read_text(encoding="ascii"))
    found = {name: _row(name, row, __package__) for name, row in ours.items()}
    for extension in extensions():
        found |= {name: _row(name, row, extension.package) for name, row in extension.rows.items()}
    return found


def exporter(architecture: str) -> str:
    """The exporter of an architecture."""
    row = rows().get(architecture)
    return row.exporter if row else TORCHSCRIPT


def versions(architecture: str) -> list[str]:
    """The distributions that may take part in an export: all if the architecture is unknown."""
    return [one.version for one in extensions() if _concerns(one, architecture)]


def _concerns(extension: Extension, architecture: str) -> bool:
    return not architecture or architecture in extension.rows


def _row(name: str, row: Mapping[str, Any], package: str) -> Row:
    known = {one.name for one in fields(Row)} - {"package"}
    if unknown := set(row) - known:
        raise StageError(
            f"[{name}] in the {FILE} of {package} has an unknown key '{min(unknown)}'",
            f"known: {', '.join(sorted(known))}",
        )
    found = Row(package, **row)
    if found.exporter not in {TORCHSCRIPT, DYNAMO}:
        raise StageError(
            f"[{name}] in the {FILE} of {package} names an unknown exporter: '{found.exporter}'",
            f"{TORCHSCRIPT} or {DYNAMO}",
        )
    return found
