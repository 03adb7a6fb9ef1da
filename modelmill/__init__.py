"""Where modelmill starts: importing this package makes sure that the others are modelmill's own.

They are called `matrix`, `machine`, `state`, `feed`, `workers`, `flows` and `deploy`, as folders of
users are called too. A `state/` in the current folder, on `PYTHONPATH` or of another distribution's
would come first on the import path; here our names are bound to the folder that holds this package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("deploy", "feed", "flows", "machine", "matrix", "state", "workers")


class Rooms(MetaPathFinder):
    """Finds our packages beside this one and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package of ours with this name."""
        if path is None and fullname in ROOMS:
            return PathFinder.find_spec(fullname, [str(ROOT)], target)
        return None


sys.meta_path.insert(0, Rooms())
