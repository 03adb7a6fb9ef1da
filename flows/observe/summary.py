"""How a sweep stands or ended: as text, as JSON, as an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flows.observe.failures import FailureGroup, group_failures
from flows.observe.unserved import unserved_of
from flows.output.quantity import counted, limited
from flows.output.table import grid_lines
from flows.stop import Stop
from matrix.errors import Exit
from matrix.model import is_export
from matrix.status import Status
from state.records import Bench, BenchState, Kind, Outcome, SweepInfo
from state.transitions import FINAL

if TYPE_CHECKING:
    from state.reading import StateReader

_GOOD, _SAME = "ok", "same"
MOST_CAUSES = 20
"""Causes, and cells without a benchmark, that the end of a sweep names."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and failures of a sweep. Exports are not cells and are counted apart."""

    stamp: str
    feed: str
    counts: dict[str, int]
    """Cells by status."""
    failures: tuple[Outcome, ...]
    """Cells that failed."""
    groups: tuple[FailureGroup, ...]
    """The same cells, and the exports that failed, by cause."""
    open: int
    """Cells that a resume would take up."""
    open_exports: int = 0
    waiting: tuple[str, ...] = ()
    """What open cells wait for that no available machine offers, with the next step."""
    measured: int = 0
    """Cells with a benchmark."""
    unmeasured: int = 0
    """Published cells that a resume would measure."""
    unmeasurable: tuple[Bench, ...] = ()
    """Those that could not be measured."""
    incomplete: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Published context groups that lack members: the members with the reasons."""
    unindexed: bool = False
    """Whether everything is done but the index, which no run has published."""
    stopped: Exit | None = None
    """The exit code of the last run, if something stopped it."""
    flags: str = ""
    """What commands in hints need besides the stamp."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """A word for each cell, see `grid`."""

    @property
    def unfinished(self) -> bool:
        """Whether anything is to be built or published."""
        return bool(self.open or self.open_exports)

    @property
    def resumable(self) -> bool:
        """Whether a resume has anything to do."""
        return bool(self.unfinished or self.unmeasured or self.unindexed)

    @property
    def failed_exports(self) -> int:
        """Exports that failed."""
        return sum(len(group.exports) for group in self.groups)

    @property
    def has_content(self) -> bool:
        """Whether the feed holds anything of this sweep."""
        return any(self.counts.get(status) for status in (Status.PUBLISHED, Status.UNCHANGED))

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "stamp": self.stamp,
            "feed": self.feed,
            "cells": sum(self.counts.values()),
            "counts": self.counts,
            "failed": len(self.failures),
            "open": self.open,
            "waiting": list(self.waiting),
            "incomplete": {cell: dict(lacks) for cell, lacks in self.incomplete.items()},
            "unindexed": self.unindexed,
            "exports": {"failed": self.failed_exports, "open": self.open_exports},
            "benchmarks": {
                "measured": self.measured,
                "open": self.unmeasured,
                "failed": [{"cell": one.cell, "message": one.message} for one in self.unmeasurable],
            },
            "causes": [group.to_json() for group in self.groups],
            "failures": [_failure(one) for one in self.failures],
        }

    def lines(self) -> list[str]:
        """The counts, then each cause of failures and each wait with its next step."""
        waiting = (f"  {line}" for line in self.waiting)
        lacking = (
            f"  {cell} is published without {member}: {why}"
            for cell, lacks in self.incomplete.items()
            for member, why in lacks.items()
        )
        return [self.headline(), *self._causes(), *lacking, *self._benches(), *waiting]

    def grid(self) -> Iterator[str]:
        """Models and targets, with the class of what failed."""
        return grid_lines(self.marks, (_GOOD, _SAME), left_out=str(Status.SKIPPED))

    def headline(self) -> str:
        """The counts."""
        total = sum(self.counts.values())
        parts = [f"{count} {status.replace('_', ' ')}" for status, count in self.counts.items()]
        return f"sweep {self.stamp}: {counted(total, 'cell')}: {', '.join(parts) or 'none'}"

    def _causes(self) -> Iterator[str]:
        """What failed, by cause."""
        for group in self.groups[:MOST_CAUSES]:
            yield from group.lines()
        if len(self.groups) > MOST_CAUSES:
            more = counted(len(self.groups) - MOST_CAUSES, "more cause")
            yield f"  ... and {more}: modelmill status {self.stamp} --failed"

    def _benches(self) -> Iterator[str]:
        """How many cells were measured, and why others were not."""
        failed = len(self.unmeasurable)
        numbers = {"measured": self.measured, "open": self.unmeasured, "failed": failed}
        if parts := [f"{number} {what}" for what, number in numbers.items() if number]:
            yield f"benchmarks: {', '.join(parts)}"
        lines = [f"  {one.cell} is not measured: {one.message}" for one in self.unmeasurable]
        yield from limited(lines, MOST_CAUSES, "  ... and {} more")
        if failed:
            yield f"  next: modelmill resume {self.stamp}{self.flags} tries them again"

    def exit_code(self, stop: Stop | None = None) -> Exit:
        """The exit code of a process that ran or watched this sweep."""
        if stop:
            return stop.exit_code
        if self.resumable and self.stopped is not None:
            return self.stopped
        if self.groups or self.waiting or self.unmeasurable or self.incomplete:
            return Exit.CELLS_FAILED
        return Exit.INTERRUPTED if self.resumable else Exit.OK


def _failure(one: Outcome) -> dict[str, str]:
    told = {"class": one.failure, "message": one.message, "hint": one.hint}
    texts = {name: value or "" for name, value in told.items()}
    return {"cell": one.cell, "status": str(one.status), **texts}


def summary_of(
    state: StateReader,
    info: SweepInfo,
    outcomes: Iterable[Outcome] | None = None,
    *,
    ended: bool = False,
) -> Summary:
    """Where a sweep stands now. `outcomes`: those that count, None: all; `ended`: its run is over,
    so it is told what the rest waits for."""
    if outcomes is None:
        outcomes = state.outcomes(info.id, brief=True)
    benches = state.benches(info.id)
    why = unserved_of(state, info.id)
    flags = " --fleet" if why.fleet else ""
    found = summarize(info.stamp, info.feed, outcomes, benches, publish=info.publish, flags=flags)
    stopped = Exit(info.exit_code) if info.exit_code in _STOPPED else None
    found = replace(found, stopped=stopped, unindexed=_unindexed(state, info, found))
    if ended and (found.unfinished or found.unmeasured):
        return replace(found, waiting=tuple(why.lines()))
    return found


_STOPPED = {Exit.HOST_CANNOT_PUBLISH, Exit.UNUSABLE, Exit.INTERRUPTED}
"""Exit codes of runs that did not come to their end."""


def _unindexed(state: StateReader, info: SweepInfo, summary: Summary) -> bool:
    """Whether only the index is missing: no run came to its end since a cell changed last."""
    ended = info.exit_code is not None and info.exit_code not in _STOPPED
    if ended or not info.publish or summary.unfinished or not summary.has_content:
        return False
    index = state.newest_event(info.id, Kind.INDEX)
    after = index.id if index else 0
    changes = (state.events(info.id, after, kind=kind) for kind in (Kind.STATUS, Kind.SEEDED))
    return index is None or any(True for some in changes for _change in some)


def open_text(summary: Summary) -> str:
    """What a resume would take up; exports only if no cell is open."""
    if summary.unindexed and not summary.unmeasured:
        return "the index is not published"
    numbers = {
        "cell": summary.open, "export": summary.open_exports, "benchmark": summary.unmeasured
    }  # fmt: skip
    texts = (f"{counted(number, what)} open" for what, number in numbers.items() if number)
    return next(texts, "nothing is open")


def summarize(
    stamp: str,
    feed: str,
    outcomes: Iterable[Outcome],
    benches: Iterable[Bench] = (),
    *,
    publish: bool,
    flags: str = "",
) -> Summary:
    """Count outcomes; `publish`: a verified cell is still to be published."""
    counts: Counter[Status] = Counter()
    failed = []
    still_open: Counter[bool] = Counter()
    good = set()
    incomplete, marks = {}, {}
    for one in outcomes:
        if lacks := (one.detail or {}).get("left_out"):
            incomplete[one.cell] = {str(cell): str(why) for cell, why in dict(lacks).items()}
        if one.status in FINAL:
            good.add(one.cell)
        export = is_export(one.cell)
        if not export:
            counts[one.status] += 1
            marks[one.cell] = _mark(one, publish=publish)
        if one.status.failed:
            failed.append(one)
        if one.status.unfinished(publish=publish):
            still_open[export] += 1
    measures = [bench for bench in benches if bench.cell in good]
    states = Counter(bench.state for bench in measures)
    return Summary(
        stamp=stamp,
        feed=feed,
        counts={str(status): counts[status] for status in Status if counts[status]},
        failures=tuple(one for one in failed if not is_export(one.cell)),
        groups=group_failures(failed, f"{stamp}{flags}"),
        flags=flags,
        open=still_open[False],
        open_exports=still_open[True],
        measured=states[BenchState.MEASURED],
        unmeasured=states[BenchState.WANTED],
        unmeasurable=tuple(one for one in measures if one.state is BenchState.FAILED),
        incomplete=incomplete,
        marks=marks,
    )


def _mark(one: Outcome, *, publish: bool) -> str:
    if one.status.failed:
        return str(one.failure or one.status)
    if one.status is Status.SKIPPED:
        return str(one.status)
    if one.status.unfinished(publish=publish):
        return "open"
    return _SAME if one.status is Status.UNCHANGED else _GOOD
