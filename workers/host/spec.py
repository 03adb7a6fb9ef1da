"""What a host serves and the command that starts its child."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CHILD = Path(__file__).with_name("child.py")
ROOMS = CHILD.parents[2]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The object to serve and its interpreter (None: ours)."""

    name: str
    target: str
    """MODULE:ATTR."""
    python: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """The command that starts the child; it names every package that the child needs."""
        packages = {name: ROOMS / name for name in ("matrix", "machine", "workers")}
        top = self.target.partition(":")[0].partition(".")[0]
        if top not in packages and (origin := _origin(top)) is not None:
            packages[top] = origin
        named = [f"--package={name}={path}" for name, path in packages.items()]
        python = str(self.python or sys.executable)
        return [python, "-X", "utf8", str(CHILD), "--serve", self.target, *named]


def _origin(package: str) -> Path | None:
    """Where a top-level module of ours is, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and Path(spec.origin).exists() else None
