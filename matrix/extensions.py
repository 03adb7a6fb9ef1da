"""Architectures that other packages add to the optimum engine: read, never imported.

A distribution names a top-level package under the entry point group `modelmill.architectures`. Its
file `architectures.toml` says which tasks each of its architectures is exported for, and so plans
and coverage know them; an engine's process alone imports the package.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from matrix.errors import UsageError

GROUP = "modelmill.architectures"
FILE = "architectures.toml"
ENGINE = "optimum"


@dataclass(frozen=True, slots=True)
class Extension:
    """A package with architectures."""

    package: str
    version: str
    """Name and version of its distribution, which are in the key of what it exports."""
    rows: Mapping[str, Mapping[str, Any]]
    """By architecture; `workers/optimum_engine/architectures` describes them."""

    def tasks(self) -> Mapping[str, tuple[str, ...]]:
        """The tasks of each architecture."""
        return {name: tuple(row["tasks"]) for name, row in self.rows.items()}


@cache
def extensions() -> tuple[Extension, ...]:
    """All that are installed, in the order of their names."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(_extension(point) for point in points)


def of(architecture: str) -> Extension | None:
    """The extension that adds an architecture."""
    return next((one for one in extensions() if architecture in one.rows), None)


def _extension(point: EntryPoint) -> Extension:
    who = f"the entry point {point.name} of {GROUP}"
    spec = find_spec(point.value) if point.value.isidentifier() else None
    if spec is None or spec.origin is None:
        raise UsageError(f"{who}: {point.value} is no package", hint="name a top-level package")
    file = Path(spec.origin).parent / FILE
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{who}: {file} cannot be read: {error}", hint="correct or uninstall the package"
        ) from error
    for name, row in rows.items():
        tasks = row.get("tasks") if isinstance(row, dict) else None
        if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
            raise UsageError(f"{file}: [{name}] has no list of tasks", hint="correct the package")
    found = point.dist
    version = f"{found.name} {found.version}" if found else point.value
    return Extension(point.value, version, rows)
