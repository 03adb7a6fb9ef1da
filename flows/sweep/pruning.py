"""Which sweeps leave the state: ended ones that nothing that may come needs.

Kept are sweeps that are not over or that a resume would go on with, the newest ones of each
catalog, selection and feed, and those with the newest record of a published cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.output.quantity import counted

if TYPE_CHECKING:
    from state.records import SweepInfo
    from state.state import State


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, or would be."""

    removed: tuple[str, ...]
    """Stamps, the oldest sweep first."""
    resumable: tuple[str, ...]
    """Of the others that are as old, those that a resume would go on with."""
    needed: tuple[str, ...]
    """And those with the newest record of a published cell."""

    def lines(self, *, dry_run: bool) -> Iterator[str]:
        """For people."""
        verb = "would remove" if dry_run else "removed"
        names = f": {' '.join(self.removed)}" if self.removed else ""
        yield f"{verb} {counted(len(self.removed), 'sweep')}{names}"
        if self.resumable:
            yield f"not over, a resume continues them: {' '.join(self.resumable)}"
        if self.needed:
            yield f"with the newest record of a published cell: {' '.join(self.needed)}"


def prune(state: State, unused: float, keep: int = 1, *, dry_run: bool = False) -> Pruned:
    """Remove sweeps that ended so many seconds ago, but for the newest of each kind."""
    from flows.observe.summary import summary_of
    from flows.observe.sweep_data import kind_of

    before, newest = state.now() - unused, state.newest_published()
    places: Counter[tuple[object, ...]] = Counter()
    old: list[SweepInfo] = []
    for info in sorted(state.sweeps(), key=lambda one: (one.created_at, one.id), reverse=True):
        places[kind_of(info)] += 1
        ended = info.ended_at is not None and info.ended_at < before
        if ended and places[kind_of(info)] > max(keep, 1):
            old.append(info)
    removed, resumable, needed = [], [], []
    for info in reversed(old):
        if summary_of(state, info).resumable:
            resumable.append(info.stamp)
        elif info.id in newest:
            needed.append(info.stamp)
        elif dry_run or state.remove_sweep(info.id):
            removed.append(info.stamp)
    return Pruned(tuple(removed), tuple(resumable), tuple(needed))
