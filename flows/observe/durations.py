"""How long a sweep has taken: all of its runs together, and the last one by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flows.cli.quantity import counted, show_duration
from state.reading import StateReader
from state.records import Kind, Outcome, SweepInfo


@dataclass(frozen=True, slots=True)
class Duration:
    """The time of all runs of a sweep that have ended."""

    seconds: float = 0.0
    runs: int = 0
    idle: bool = False
    """Whether the last one began no cell."""


def duration_of(state: StateReader, info: SweepInfo, outcomes: Iterable[Outcome]) -> Duration:
    """Add up the runs of a sweep from the events that begin and end them."""
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


@dataclass(frozen=True, slots=True)
class LastRun:
    """What the last run of a sweep took, and the stages that it built or found in the store."""

    stamp: str
    seconds: float
    built: int
    reused: int

    @classmethod
    def of(cls, state: StateReader, info: SweepInfo) -> LastRun:
        """Of a run that is over."""
        info = state.sweep(info.id)
        built, reused = state.stage_counts(info.id, info.begun_at)
        seconds = (info.ended_at or state.now()) - info.begun_at
        return cls(info.stamp, round(max(0.0, seconds), 3), built, reused)

    def __str__(self) -> str:
        work = "nothing built"
        if self.built or self.reused:
            work = f"{counted(self.built, 'stage')} built, {self.reused} reused"
        took = show_duration(self.seconds)
        return f"in {took}: {work}; report: modelmill report {self.stamp}"

    def to_json(self) -> dict[str, float]:
        """For machines."""
        return {"seconds": self.seconds, "stages_built": self.built, "stages_reused": self.reused}
