"""Reading a sweep from its state into the document of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

from flows.cli.meanings import CAUSES, EXITS, LOOKS
from flows.cli.plaintext import plain_text
from flows.observe.diff.comparison import MEANINGS, Change, ChangeKind, Comparison
from flows.observe.diff.text import deltas
from flows.observe.durations import Duration, duration_of
from flows.observe.evidence import level_of, rungs_of
from flows.observe.failures import FailureGroup
from flows.observe.latency import by_tree, comparison_of, view_of
from flows.observe.masking import masked, masked_json
from flows.observe.opening import opening_of, sharing_of
from flows.observe.report.document import CellView, Distinct, Document, Heading, Stage
from flows.observe.report.grid import Grid, with_content
from flows.observe.report.statistics import largest, pass_rates, slowest, totals
from flows.observe.report.timeline import History
from flows.observe.summary import Summary, summarize
from flows.sweep.recorded import PlannedCells
from matrix.errors import Exit
from state.reading import StateReader
from state.records import (
    Bench,
    BenchState,
    Measurement,
    MeasurementKind,
    Outcome,
    StageRun,
    SweepInfo,
)

LOG_LENGTH = 6_000
"""How many characters of a log's end a report keeps; the log file has all of it."""
_EVIDENCE_LENGTH = 3_000
_COPIED = (
    "precision", "package", "version", "tree", "bytes", "seconds", "attempts", "ended_at", "stage",
    "exit_code", "retryable",
)  # fmt: skip
"""What a view of a cell takes from its outcome as it is."""


def collect(
    state: StateReader,
    info: SweepInfo,
    comparison: Comparison | None = None,
    pages: Mapping[int, str] | None = None,
) -> Document:
    """Everything that a report shows. Only reads, so it may run beside the sweep.

    `pages`: where the pages of traces are, by their measurements.
    """
    outcomes = list(state.outcomes(info.id))
    planned = PlannedCells.of(state, info.id)
    grid = Grid.of(outcomes, planned)
    ordered = sorted(outcomes, key=grid.place)
    places = {one.cell: place for place, one in enumerate(ordered)}
    history = History(Distinct(), places)
    history.read(state.events(info.id))
    runs = state.stage_runs(info.id)
    trees = {one.tree for one in outcomes if one.tree}
    collector = CellCollector(
        grid,
        planned,
        history,
        _by_cell(runs),
        state.real_seconds(info.id),
        by_tree(state.measurements(trees)),
        {one.cell: one for one in state.benches(info.id)},
        pages or {},
    )
    cells = [collector.view(one) for one in ordered]
    rows = with_content(grid.rows, runs, state.key_parts(info.id))
    summary = summarize(
        info.stamp, info.feed, outcomes, state.benches(info.id), publish=info.publish
    )
    return Document(
        heading=_heading(state, info, summary, duration_of(state, info, outcomes)),
        totals=totals(cells, len(rows), summary),
        statuses=[{"name": str(status), **asdict(look)} for status, look in LOOKS.items()],
        causes={str(kind): asdict(cause) for kind, cause in CAUSES.items()},
        columns=grid.columns,
        rows=rows,
        cells=cells,
        policies=collector.policies.values,
        keys=collector.keys.values,
        owners=history.owners.values,
        logs=collector.logs.values,
        timeline=history.timeline(),
        failures=[_cause(group, places) for group in summary.groups],
        rates=pass_rates(cells, rows),
        slowest=slowest(cells, rows),
        largest=largest(cells),
        comparison=_compared(comparison),
    )


def _cause(group: FailureGroup, places: Mapping[str, int]) -> dict[str, Any]:
    return {
        "failure": str(group.failure),
        "text": masked(group.text),
        "hint": masked(plain_text(group.hint)),
        "models": len(group.models),
        "cells": [places[cell] for cell in group.cells],
        "exports": [places[cell] for cell in group.exports],
    }


def _compared(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    told = [
        one
        for one in comparison.changes
        if one.verdict is not ChangeKind.UNCHANGED or any(each.clear for each in one.latency)
    ]
    return {
        "before": comparison.before,
        "after": comparison.after,
        "counts": comparison.counts(),
        "meanings": {str(verdict): text for verdict, text in MEANINGS.items()},
        "changes": [masked_json({**asdict(one), "deltas": _deltas(one)}) for one in told],
    }


def _deltas(one: Change) -> list[str]:
    latency = [str(change) for change in one.latency]
    if one.before is None or one.after is None or one.verdict is not ChangeKind.CHANGED:
        return [*one.weaker, *latency]
    return [*one.weaker, *latency, *deltas(one.before, one.after)]


@dataclass(slots=True)
class CellCollector:
    """Puts together what is known of each cell."""

    grid: Grid
    planned: PlannedCells
    history: History
    runs: Mapping[str, list[StageRun]]
    real_seconds: Mapping[str, float]
    measurements: Mapping[str, list[Measurement]]
    benches: Mapping[str, Bench]
    pages: Mapping[int, str]
    policies: Distinct[dict[str, Any]] = field(default_factory=Distinct)
    keys: Distinct[str] = field(default_factory=Distinct)
    logs: Distinct[str] = field(default_factory=Distinct)

    def view(self, one: Outcome) -> CellView:
        """A cell as the report shows it."""
        row, column = self.grid.place(one)
        rungs = _rungs(one)
        copied: dict[str, Any] = {name: getattr(one, name) for name in _COPIED}
        return CellView(
            row=row,
            column=column,
            id=one.cell,
            status=str(one.status),
            failure=str(one.failure) if one.failure else None,
            message=_masked(one.message),
            hint=_masked(one.hint),
            log=self._log(one.log_tail),
            policy=self._policy(one.cell),
            rungs=rungs,
            level=level_of(rungs),
            opening=opening_of(one.evidence),
            benchmarks=self._benchmarks(one),
            comparisons=self._comparisons(one),
            unmeasured=self._unmeasured(one),
            traces=self._traces(one),
            sharing=sharing_of(one.evidence),
            detail=masked_json(dict(one.detail)) if one.detail else None,
            stages=[self._stage(run) for run in self.runs.get(one.cell, ())],
            steps=self.history.steps.get(one.cell, ()),
            **copied,
        )

    def _log(self, tail: str | None) -> int | None:
        return self.logs.of(masked(plain_text(tail)[-LOG_LENGTH:])) if tail else None

    def _benchmarks(self, one: Outcome) -> list[dict[str, Any]]:
        return [
            masked_json(view_of(other))
            for other in self.measurements.get(one.tree or "", ())
            if other.kind is MeasurementKind.BENCHMARK
        ]

    def _comparisons(self, one: Outcome) -> list[dict[str, Any]]:
        found = map(comparison_of, self.measurements.get(one.tree or "", ()))
        return [masked_json(view) for view in found if view is not None]

    def _traces(self, one: Outcome) -> list[dict[str, Any]]:
        return [
            {
                **masked_json(view_of(other)),
                "level": str(other.protocol.get("level", "")),
                "page": self.pages[other.id],
            }
            for other in self.measurements.get(one.tree or "", ())
            if other.id in self.pages
        ]

    def _unmeasured(self, one: Outcome) -> str | None:
        bench = self.benches.get(one.cell)
        if bench is None or bench.state is BenchState.MEASURED or not one.status.done:
            return None
        if bench.state is BenchState.FAILED:
            return _masked(bench.message)
        return f"waits for a machine that offers {' '.join(bench.needs)}"

    def _policy(self, cell: str) -> int | None:
        policy = self.planned.policy(cell)
        if not policy:
            return None
        return self.policies.of(dict(policy), json.dumps(policy, sort_keys=True))

    def _stage(self, run: StageRun) -> Stage:
        saved = self.real_seconds.get(run.key, 0.0) if run.reused else 0.0
        return Stage(
            stage=run.stage,
            component=run.component,
            reused=run.reused,
            seconds=round(run.seconds, 3),
            saved=round(saved, 3),
            bytes=run.bytes,
            memory=run.peak_memory,
            key=self.keys.of(run.key),
        )


def _masked(text: str | None) -> str | None:
    return None if text is None else masked(plain_text(text))


def _rungs(one: Outcome) -> list[dict[str, Any]]:
    found = []
    for rung in rungs_of(one):
        told = masked_json(dict(rung))
        if len(json.dumps(told.get("evidence"))) > _EVIDENCE_LENGTH:
            told["evidence"] = {"left out": "too long for a report; it is in build.json"}
        found.append(told)
    return found


def _by_cell(runs: list[StageRun]) -> dict[str, list[StageRun]]:
    found: dict[str, list[StageRun]] = {}
    for run in runs:
        found.setdefault(run.cell, []).append(run)
    return found


def _heading(state: StateReader, info: SweepInfo, summary: Summary, duration: Duration) -> Heading:
    settings = {
        name: value
        for name, value in info.settings.items()
        if name != "feed" and value not in (None, [], "", False)
    }
    code = info.exit_code
    if code == Exit.OK and summary.groups:
        code = int(Exit.CELLS_FAILED)  # the last run took up only a part of the sweep
    return Heading(
        stamp=info.stamp,
        feed=masked(info.feed),
        state=masked(state.label),
        version=version("modelmill"),
        created_at=info.created_at,
        begun_at=info.begun_at,
        ended_at=info.ended_at,
        seconds=duration.seconds,
        runs=duration.runs,
        exit_code=code,
        verdict=_verdict(code, summary.exit_code()),
        settings=masked_json(settings),
        generated_at=state.now(),
    )


def _verdict(code: int | None, now: Exit) -> str:
    if code is None:
        return "running or interrupted"
    return EXITS[Exit(code) if code in list(Exit) else now].replace("`", "")
