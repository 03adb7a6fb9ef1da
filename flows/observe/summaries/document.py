"""The content of a summary: counts and failures of a sweep, how long it took, and every cell in
short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from math import inf
from typing import Any

from flows.observe.diff.comparison import ChangeKind, Comparison, compare
from flows.observe.evidence import judged_of, run_on
from flows.observe.failures import FailureGroup, since_when
from flows.observe.progress import UNSHOWN
from flows.observe.summary import Summary, summary_of
from flows.observe.sweep_data import earlier_sweeps, failing_since
from flows.output.quantity import counted, show_duration
from matrix.model import is_export
from state.reading import StateReader
from state.records import Event, Kind, Outcome, SweepInfo

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Duration:
    """The time of all runs of a sweep that have ended."""

    seconds: float = 0.0
    runs: int = 0
    idle: bool = False
    """Whether the last one began no cell."""


def duration_of(state: StateReader, info: SweepInfo, outcomes: Iterable[Outcome]) -> Duration:
    """Add up the runs of a sweep from the events that begin and end them."""
    begins = list(state.events(info.id, kind=Kind.BEGUN))
    ends = list(state.events(info.id, kind=Kind.ENDED))
    seconds, runs = 0.0, 0
    for begun, following in zip_longest(begins, begins[1:]):
        # A run that was killed has no end; somebody else may have ended it more than once.
        limit = following.id if following else inf
        ended = next((one for one in ends if begun.id < one.id < limit), None)
        if ended:
            seconds += _between(begun, ended)
            runs += 1
    last = begins[-1].at if begins else info.begun_at
    busy = any(one.started_at is not None and one.started_at >= last for one in outcomes)
    return Duration(round(seconds, 3), runs, idle=not busy)


def _between(begun: Event, ended: Event) -> float:
    """What a run took; of one that somebody else ended, by the clock, which may have been set."""
    measured = (ended.data or {}).get("seconds")
    return max(0.0, ended.at - begun.at) if measured is None else float(measured)


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
        built, reused = state.stage_counts(info.id, state.sweep(info.id).begun_at)
        begun, ended = (state.newest_event(info.id, kind) for kind in (Kind.BEGUN, Kind.ENDED))
        seconds = 0.0
        if begun is not None:
            over = ended is not None and ended.id > begun.id
            seconds = _between(begun, ended) if ended and over else max(0.0, state.now() - begun.at)
        return cls(info.stamp, round(seconds, 3), built, reused)

    def __str__(self) -> str:
        work = "nothing built"
        if self.built or self.reused:
            work = f"{counted(self.built, 'stage')} built, {self.reused} reused"
        took = show_duration(self.seconds)
        return f"in {took}: {work}; report: modelmill report {self.stamp}"

    def to_json(self) -> dict[str, float]:
        """For machines."""
        return {"seconds": self.seconds, "stages_built": self.built, "stages_reused": self.reused}


@dataclass(frozen=True, slots=True)
class SummaryDocument:
    """A sweep for machines and dashboards."""

    info: SweepInfo
    summary: Summary
    outcomes: Sequence[Outcome]
    """Cells and exports, in the order of their ids."""
    duration: Duration = field(default_factory=Duration)
    since: Comparison | None = None
    """Compared with the sweep before this one; None: it is the first."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Cells that failed before too, with the stamp of the sweep since which they fail."""
    unshown: str = ""
    """Why Prefect does not show all of the last run; empty: it does."""

    @property
    def seconds(self) -> float | None:
        """Of all runs; None while one is at work."""
        return None if self.info.ended_at is None else self.duration.seconds

    def since_when(self, group: FailureGroup) -> str:
        """Since which sweep the cells of a cause fail; empty: there is none before this one."""
        return since_when(group, self.failing) if self.since else ""

    def to_json(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {
            "schema": SCHEMA,
            **self.summary.to_json(),
            "begun_at": self.info.begun_at,
            "ended_at": self.info.ended_at,
            "seconds": self.seconds,
            "runs": self.duration.runs,
            "exit_code": self.info.exit_code,
            "unshown": self.unshown or None,
            "since": self._since(),
            "failing_since": dict(self.failing),
            "outcomes": [_cell(one) for one in self.outcomes],
        }

    def _since(self) -> Mapping[str, Any] | None:
        if self.since is None:
            return None
        document = self.since.to_json()
        cells = [one for one in document["cells"] if one["verdict"] != ChangeKind.UNCHANGED]
        return {**document, "cells": cells}


def summary_document(
    state: StateReader, info: SweepInfo, against: SweepInfo | None = None
) -> SummaryDocument:
    """Read a sweep. `against`: compare it with this one, not with the one before."""
    fresh = state.sweep(info.id)
    outcomes = list(state.outcomes(fresh.id))
    earlier = earlier_sweeps(state, fresh)
    before = against or next(iter(earlier), None)
    return SummaryDocument(
        fresh,
        summary_of(state, fresh, outcomes),
        outcomes,
        duration_of(state, fresh, outcomes),
        compare(state, before, fresh) if before else None,
        failing_since(state, earlier, outcomes),
        _unshown(state, fresh),
    )


def _unshown(state: StateReader, info: SweepInfo) -> str:
    begun = state.newest_event(info.id, Kind.BEGUN)
    notices = state.events(info.id, begun.id if begun else 0, kind=Kind.NOTICE)
    told = [one.data[UNSHOWN] for one in notices if one.data and UNSHOWN in one.data]
    return str(told[-1]) if told else ""


_COPIED = (
    "precision", "package", "tree", "bytes", "seconds", "attempts", "stage", "message", "hint",
)  # fmt: skip


def _cell(one: Outcome) -> Mapping[str, Any]:
    proof, ran = judged_of(one), run_on(one.evidence)
    return {
        "id": one.cell,
        "kind": "export" if is_export(one.cell) else "cell",
        "status": str(one.status),
        "class": str(one.failure) if one.failure else None,
        "version": str((one.detail or {}).get("same_as", one.version)),
        **{name: getattr(one, name) for name in _COPIED},
        "samples": None if proof is None else asdict(proof),
        "run_on": None if ran is None else str(ran),
    }
