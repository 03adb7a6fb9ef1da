"""Finding the sweep that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.slugs import slug

if TYPE_CHECKING:
    from state.ledger import State
    from state.records import SweepInfo


def find_sweep(state: State, stamp: str | None) -> SweepInfo:
    """The sweep of that stamp, or the one begun last."""
    info = state.find_sweep(slug(stamp) if stamp else None)
    if info is None:
        known = ", ".join(one.stamp for one in state.sweeps()[:5])
        what = f"no sweep '{stamp}'" if stamp else "no sweep"
        raise UsageError(
            f"{what} in the state {state.label}",
            hint=f"known: {known}" if known else "start one: modelmill sweep CATALOG",
        )
    return info
