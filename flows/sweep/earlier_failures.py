"""What a new run does with the cells that failed in earlier runs of the sweep.

Some causes lie outside the build: a missing tool, a full disk, the network, a login. They may be
gone, so a new run tries those cells again. The other cells fail again until the catalog or the
settings change; a new run leaves them, says so, and prints the command that retries them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from flows.sweep.planned_packages import is_export
from matrix.status import FailureClass
from state.ledger import State
from state.records import SweepInfo

AGAIN = tuple(kind for kind in FailureClass if kind.may_pass)


@dataclass(frozen=True, slots=True)
class EarlierFailures:
    """Cells that failed before, counted by class."""

    tried: Mapping[FailureClass, int] = field(default_factory=dict)
    left: Mapping[FailureClass, int] = field(default_factory=dict)

    def lines(self, stamp: str, flags: str = "") -> list[str]:
        """Lines for people. `flags`: what the commands need besides the stamp."""
        lines = []
        if self.tried:
            lines.append(f"failed before, tried again: {_counted(self.tried)}")
        if self.left:
            lines.append(
                f"failed before, left as they are: {_counted(self.left)}; "
                f"to try them again: modelmill retry {stamp}{flags}"
            )
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
    tried = state.retry(info.id, AGAIN, among=failed) if again and failed else []
    again_now = frozenset(tried)
    return EarlierFailures(
        _count(failed[cell] for cell in tried if not is_export(cell)),
        _count(
            kind for cell, kind in failed.items() if cell not in again_now and not is_export(cell)
        ),
    )


def _count(kinds: Iterable[FailureClass]) -> Mapping[FailureClass, int]:
    counts = Counter(kinds)
    return {kind: counts[kind] for kind in FailureClass if counts[kind]}


def _counted(counts: Mapping[FailureClass, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())
