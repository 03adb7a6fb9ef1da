"""Notes: small records that save work and may be lost (verification results, last keys)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from machine.files import read_whole
from matrix.digest import value_digest
from workers.store.aside import Aside
from workers.store.folder import write_record
from workers.store.sealed import seal, unseal


class Notes:
    """JSON values by kind and name."""

    def __init__(self, root: Path, scratch: Path, aside: Aside) -> None:
        self._root = root
        self._scratch = scratch
        self._aside = aside

    def read(self, kind: str, name: str) -> Any | None:
        """A note, or None; one that is damaged was never written."""
        try:
            return unseal(read_whole(self._path(kind, name)))
        except (OSError, ValueError):
            return None

    def write(self, kind: str, name: str, value: Any) -> None:
        """Keep a note; a full disk may refuse it, which costs work later and nothing else."""
        path = self._path(kind, name)
        with contextlib.suppress(OSError):
            write_record(path, seal(value), self._root.parent, self._scratch, self._aside)

    def _path(self, kind: str, name: str) -> Path:
        digest = value_digest(name)
        return self._root / kind / digest[:2] / f"{digest}.json"
