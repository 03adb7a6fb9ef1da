"""Two sweeps, cell by cell: what became of each, and how much it differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from typing import Any

from flows.observe.diff.inputs import InputChange, Made, input_changes
from flows.observe.evidence import judged_of, rungs_of, weaker
from flows.observe.latency import LatencyChange
from flows.observe.latency import changes as latency_changes
from flows.observe.sweep_data import SweepData
from matrix.model import is_export
from matrix.status import Status
from state.reading import StateReader
from state.records import Measurement, Outcome, SweepInfo


class ChangeKind(StrEnum):
    """What became of a cell from one sweep to the other, the most important first."""

    NOW_FAILS = "now fails"
    STILL_FAILS = "still fails"
    VERIFIED_LESS = "verified less"
    NOW_WORKS = "now works"
    CHANGED = "changed"
    NEW = "new"
    REMOVED = "removed"
    UNFINISHED = "unfinished"
    UNCHANGED = "unchanged"


_NOISE = 0.5
"""Decibels between two builds that are no news."""
_SAME = {ChangeKind.UNCHANGED, ChangeKind.STILL_FAILS}

MEANINGS: Mapping[ChangeKind, str] = {
    ChangeKind.NOW_FAILS: "worked before, fails now",
    ChangeKind.STILL_FAILS: "failed before and fails now",
    ChangeKind.VERIFIED_LESS: "the same content, but verification proves less of it than before",
    ChangeKind.NOW_WORKS: "failed before, works now",
    ChangeKind.CHANGED: "works in both, with different content",
    ChangeKind.NEW: "only in the second sweep (or skipped in the first)",
    ChangeKind.REMOVED: "only in the first sweep (or skipped in the second)",
    ChangeKind.UNFINISHED: "not at its end in one of the two",
    ChangeKind.UNCHANGED: "works in both, with the same content",
}


@dataclass(frozen=True, slots=True)
class Side:
    """A cell in one of the sweeps."""

    status: str
    version: str
    tree: str | None
    bytes: int | None
    seconds: float | None
    """Of its stages; a reused stage counts with the time of its real run."""
    failure: str | None
    message: str | None
    measures: Mapping[str, float]
    """Numbers that verification measured (parity and the like)."""
    samples: str = ""
    """What it was judged on; empty: nothing was."""
    snr: float | None = None
    """Decibels, and the share of equal decisions: the worst of all outputs."""
    agreement: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A cell in both."""

    cell: str
    verdict: ChangeKind
    before: Side | None
    after: Side | None
    inputs: tuple[InputChange, ...] = ()
    note: str = ""
    """An explanation where the inputs give none."""
    weaker: tuple[str, ...] = ()
    """What verification proved before and no longer proves."""
    latency: tuple[LatencyChange, ...] = ()
    """Where it was measured in both on the same device and kind of runtime."""
    again: str = ""
    """What verifying the second sweep's package again came to, unless it always held."""

    @property
    def slower(self) -> bool:
        """Whether a benchmark clearly says so."""
        return any(one.clear and one.ratio > 0 for one in self.latency)

    @property
    def accuracy(self) -> str:
        """How much less accurate other content is on samples of the same kind; empty: it is not."""
        old, new = self.before, self.after
        changed = self.verdict is ChangeKind.CHANGED
        if not changed or old is None or new is None or old.samples != new.samples:
            return ""
        told = []
        both = old.agreement is not None and new.agreement is not None
        if both and (new.agreement or 0.0) < (old.agreement or 0.0):
            told.append(f"agreement {old.agreement:.1%} -> {new.agreement:.1%}")
        if old.snr is not None and new.snr is not None and new.snr < old.snr - _NOISE:
            told.append(f"{old.snr:.1f} dB -> {new.snr:.1f} dB")
        return ", ".join(told)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sweeps compared; `before` and `after` are their stamps."""

    before: str
    after: str
    changes: Sequence[Change]

    def counts(self) -> dict[str, int]:
        """Cells by verdict, every verdict."""
        found = Counter(change.verdict for change in self.changes)
        return {str(verdict): found[verdict] for verdict in ChangeKind}

    @property
    def differs(self) -> bool:
        """Whether any cell differs."""
        return any(change.verdict not in _SAME for change in self.changes)

    def of(self, verdict: ChangeKind) -> list[Change]:
        """The cells of one verdict."""
        return [change for change in self.changes if change.verdict is verdict]

    @property
    def verified_again(self) -> list[Change]:
        """The cells that have not always held since they were published."""
        return [change for change in self.changes if change.again]

    @property
    def measured(self) -> list[Change]:
        """The cells whose latency was measured in both, the largest change first."""
        found = [change for change in self.changes if change.latency]
        return sorted(found, key=lambda one: -max(abs(each.ratio) for each in one.latency))

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        cells = [asdict(change) for change in self.changes]
        stamps = {"before": self.before, "after": self.after}
        return {**stamps, "counts": self.counts(), "cells": cells}


def compare(state: StateReader, before: SweepInfo, after: SweepInfo) -> Comparison:
    """Compare two sweeps of one state. Exports count only where they fail."""
    first, second = _Half(state, before), _Half(state, after)
    cells = first.outcomes.keys() | second.outcomes.keys()
    changes = [one for cell in cells if (one := _change(cell, first, second)) is not None]
    order = list(ChangeKind)
    changes.sort(key=lambda change: (order.index(change.verdict), change.cell))
    return Comparison(before.stamp, after.stamp, tuple(changes))


class _Stand(Enum):
    ABSENT, OPEN, GOOD, BAD = range(4)


_FAILING = {
    (_Stand.GOOD, _Stand.BAD): ChangeKind.NOW_FAILS,
    (_Stand.BAD, _Stand.BAD): ChangeKind.STILL_FAILS,
    (_Stand.BAD, _Stand.GOOD): ChangeKind.NOW_WORKS,
}


def _verdict(one: Outcome | None, was: _Stand, other: Outcome | None, now: _Stand) -> ChangeKind:
    if _Stand.OPEN in {was, now}:
        return ChangeKind.UNFINISHED
    if one is None or was is _Stand.ABSENT:
        return ChangeKind.NEW
    if other is None or now is _Stand.ABSENT:
        return ChangeKind.REMOVED
    if failing := _FAILING.get((was, now)):
        return failing
    if one.tree != other.tree:
        return ChangeKind.CHANGED
    less = any(weaker(one.evidence, other.evidence))
    return ChangeKind.VERIFIED_LESS if less else ChangeKind.UNCHANGED


class _Half(SweepData):
    """One of the two sweeps."""

    def stand(self, one: Outcome | None) -> _Stand:
        if one is None or one.status is Status.SKIPPED:
            return _Stand.ABSENT
        if one.status.failed:
            return _Stand.BAD
        unfinished = one.status.unfinished(publish=self.info.publish)
        return _Stand.OPEN if unfinished else _Stand.GOOD

    def measured(self, one: Outcome | None) -> list[Measurement]:
        """What was measured of the content of a cell."""
        return self.measurements[one.tree or ""] if one else []

    def made(self, cell: str) -> Made:
        """The inputs of a cell in this sweep."""
        # Of each stage and component, the last run.
        named = {f"{run.stage} {run.component}".strip(): run.key for run in self.runs[cell]}
        stages = {name: self.parts.get(key, {}) for name, key in named.items()}
        model = cell.rpartition("@")[0]
        return Made(stages, self.planned.policy(cell), self.planned.source(model))

    def side(self, one: Outcome | None) -> Side | None:
        """The cell in this sweep."""
        if one is None:
            return None
        latest = {(run.stage, run.component): run.key for run in self.runs[one.cell]}
        took = [self.seconds[key] for key in latest.values() if key in self.seconds]
        proof = judged_of(one)
        return Side(
            status=str(one.status),
            version=str((one.detail or {}).get("same_as", one.version)),
            tree=one.tree,
            bytes=one.bytes,
            seconds=sum(took) if took else one.seconds,
            failure=str(one.failure) if one.failure else None,
            message=one.message,
            measures=measures(rungs_of(one)),
            samples=proof.samples if proof else "",
            snr=proof.snr if proof else None,
            agreement=proof.agreement if proof else None,
        )


def _change(cell: str, first: _Half, second: _Half) -> Change | None:
    """None: the cell counts in neither sweep."""
    one, other = first.outcomes.get(cell), second.outcomes.get(cell)
    was, now = first.stand(one), second.stand(other)
    verdict = _verdict(one, was, other, now)
    if was is now is _Stand.ABSENT or (verdict not in _FAILING.values() and is_export(cell)):
        return None
    less, inputs, note = tuple[str, ...](), tuple[InputChange, ...](), ""
    if verdict in {ChangeKind.CHANGED, ChangeKind.VERIFIED_LESS} and one and other:
        less = tuple(weaker(one.evidence, other.evidence))
    if verdict in {ChangeKind.CHANGED, *_FAILING.values()}:
        old, new = first.made(cell), second.made(cell)
        inputs = tuple(input_changes(old, new))
        note = "" if inputs else _note(verdict, old, new)
    both = first.measured(one), second.measured(other)
    stamps = first.info.stamp, second.info.stamp
    latency = tuple(latency_changes(*both, stamps, one.tree if one else None))
    sides = first.side(one), second.side(other)
    return Change(cell, verdict, *sides, inputs, note, less, latency)


def _note(verdict: ChangeKind, old: Made, new: Made) -> str:
    unknown = [name for name, made in (("first", old), ("second", new)) if not made.built]
    if unknown:
        where = " and the ".join(unknown)
        return f"no stage is recorded in the {where} sweep: built elsewhere, or failed before"
    if verdict is ChangeKind.CHANGED:
        return "the recorded inputs are equal: the tools do not give the same bytes every time"
    return "the recorded inputs are equal"


def measures(rungs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Every number in the evidence of the rungs, named by rung, file and place."""
    found: dict[str, float] = {}
    for rung in rungs:
        _collect(str(rung.get("name", "")), rung.get("evidence"), found)
    return found


_NO_MEASURE = {"ir", "opsets", "outputs", "external"}


def _collect(name: str, value: Any, found: dict[str, float]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _NO_MEASURE:
                _collect(f"{name} {key}", item, found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found[name] = float(value)
