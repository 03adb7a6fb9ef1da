"""How long a sweep has taken: all of its runs, not only the last, which may have had no work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from state.ledger import State
from state.records import Kind, Outcome, SweepInfo


@dataclass(frozen=True, slots=True)
class Duration:
    """The runs of a sweep that came to an end."""

    seconds: float = 0.0
    runs: int = 0
    idle: bool = False
    """Whether the last one began no cell."""


def duration_of(state: State, info: SweepInfo, outcomes: Iterable[Outcome]) -> Duration:
    """Add up the runs of a sweep, from the events that begin and end them."""
    begins = [one.at for one in state.events(info.id, kind=Kind.BEGUN)]
    ends = [one.at for one in state.events(info.id, kind=Kind.ENDED)]
    seconds, runs = 0.0, 0
    for begun, following in zip(begins, [*begins[1:], float("inf")], strict=True):
        # A run that was killed has no end; somebody else may have ended it more than once.
        ended = [at for at in ends if begun <= at < following]
        if ended:
            seconds += ended[0] - begun
            runs += 1
    last = begins[-1] if begins else info.begun_at
    busy = any(one.started_at is not None and one.started_at >= last for one in outcomes)
    return Duration(round(seconds, 3), runs, idle=not busy)
