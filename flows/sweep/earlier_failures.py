"""What a new run does with the cells that failed in earlier runs of the sweep.

Some causes lie outside the build: a missing tool, a full disk, the network, a login. They may be
gone, so a new run tries those cells again. The other cells fail again until the catalog or the
settings change; a new run leaves them, says so, and prints the command that retries them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.model import is_export
from matrix.status import FailureClass
from state.records import SweepInfo

if TYPE_CHECKING:
    from state.state import State

AGAIN = tuple(kind for kind in FailureClass if kind.may_pass)


@dataclass(frozen=True, slots=True)
class EarlierFailures:
    """Cells that failed before, counted by class."""

    tried: Counter[FailureClass] = field(default_factory=Counter)
    left: Counter[FailureClass] = field(default_factory=Counter)

    def lines(self, stamp: str, flags: str = "") -> list[str]:
        """Lines for people. `flags`: what the commands need besides the stamp."""
        lines = []
        if self.tried:
            lines.append(f"failed before, tried again: {_counted(self.tried)}")
        if self.left:
            again = f"to try them again: modelmill retry {stamp}{flags}"
            lines.append(f"failed before, left as they are: {_counted(self.left)}; {again}")
        return lines


def try_again(
    state: State, info: SweepInfo, cells: Collection[str], *, again: bool
) -> EarlierFailures:
    """Plan those of these cells again that may succeed now.

    Not with `again` off: then the user has chosen which cells to try.
    """
    if info.created:
        return EarlierFailures()
    failed = {
        one.cell: one.failure or FailureClass.UNKNOWN
        for one in state.outcomes(info.id, brief=True)
        if one.status.failed and one.cell in cells
    }
    tried = set(state.retry(info.id, AGAIN, among=failed)) if again and failed else set()
    found = EarlierFailures()
    for cell, kind in failed.items():
        if not is_export(cell):
            (found.tried if cell in tried else found.left)[kind] += 1
    return found


def _counted(counts: Counter[FailureClass]) -> str:
    return ", ".join(f"{counts[kind]} {kind}" for kind in FailureClass if counts[kind])
