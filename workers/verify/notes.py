"""Earlier results for equal bytes, kept in the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from matrix.digest import value_digest
from workers.store import Store

Json = dict[str, Any]


@dataclass(slots=True)
class Notes:
    """Earlier results for equal bytes; new results are kept if the package passes."""

    store: Store
    again: bool = False
    """Examine what has a note too."""
    fresh: list[tuple[str, str, Json]] = field(default_factory=list)

    def find(
        self,
        kind: str,
        basis: Json,
        examine: Callable[[], Json],
        whole: Callable[[Json], bool] = lambda _found: True,
    ) -> Json:
        """The note of a basis, else the result of examining; `whole`: whether it may be kept."""
        key = value_digest(basis)
        note = None if self.again else self.store.notes.read(kind, key)
        if note:
            return dict(note)
        found = examine()
        if whole(found):
            self.fresh.append((kind, key, found))
        return found

    def keep(self) -> None:
        """Write the new results."""
        for kind, key, found in self.fresh:
            self.store.notes.write(kind, key, found)
