"""Small JSON records in the store, each with the digest of its text.

A damaged record is no record, whatever it still looks like.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from machine.files import replace_file
from matrix.digest import value_digest
from workers.store.folder import make_way


class Records:
    """The records below a folder of the store."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._store = root.parent
        self.root = root
        self._scratch = scratch

    def read(self, name: str) -> Any | None:
        """A record; None: there is none that can be read."""
        try:
            found = json.loads((self.root / name).read_bytes())
            if _digest(found["value"]) == found["sha256"]:
                return found["value"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return None

    def write(self, name: str, value: Any) -> None:
        """Write a record; what stands in its way is removed.

        Not synced: a power cut may cost the record, and one that it leaves half is no record.
        """
        # Read back first: the digest is of what a reader gets (names of fields are text then).
        plain = json.loads(json.dumps(value))
        data = json.dumps({"sha256": _digest(plain), "value": plain}, sort_keys=True).encode()
        path = self.root / name
        try:
            replace_file(path, data, beside=self._scratch)
        except OSError:
            if not make_way(path, self._store):
                raise
            replace_file(path, data, beside=self._scratch)

    def remove(self, name: str) -> None:
        """Forget a record."""
        path = self.root / name
        try:
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError:
            if not make_way(path, self._store):
                raise


class Notes:
    """Values that save work and may be lost (verification results, last keys)."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def read(self, kind: str, name: str) -> Any | None:
        """A note, or None."""
        return self._records.read(f"{kind}/{value_digest(name)}.json")

    def write(self, kind: str, name: str, value: Any) -> None:
        """Keep a note; a full disk may refuse it, which costs work later and nothing else."""
        with suppress(OSError):
            self._records.write(f"{kind}/{value_digest(name)}.json", value)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
