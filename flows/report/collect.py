"""Reading a sweep from its state into the document of a report.

A large sweep has thousands of cells, so what repeats (keys, policies, owners, logs) is listed once
and referred to by its place in that list. What is unknown is left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

from feed.azure.address import package_page
from flows.observe.diff.comparison import MEANINGS, Change, ChangeKind
from flows.observe.diff.text import deltas
from flows.observe.evidence import (
    judged_of,
    level_of,
    notices_of,
    opening_of,
    run_on,
    rungs_of,
    sharing_of,
)
from flows.observe.failures import FailureGroup
from flows.observe.latency import comparison_of, view_of
from flows.observe.summaries.document import SummaryDocument
from flows.observe.sweep_data import SweepData
from flows.output.masking import masked, masked_json
from flows.output.meanings import CAUSES, EXITS, LOOKS
from flows.output.quantity import plain_text
from flows.packages.verdicts import failures_of
from flows.report.grid import Grid, known, largest, pass_rates, slowest, totals
from flows.report.timeline import History
from flows.settings.workspace import Workspace
from matrix.errors import Exit
from matrix.status import Status
from state.reading import StateReader
from state.records import (
    Bench,
    BenchState,
    Measurement,
    MeasurementKind,
    Outcome,
    StageRun,
)

SCHEMA = 1
LOG_LENGTH = 6_000
"""How many characters of a log's end a report keeps; the log file has all of it."""
_EVIDENCE_LENGTH = 3_000
_COPIED = (
    "status", "failure", "precision", "package", "version", "tree", "bytes", "seconds", "attempts",
    "ended_at", "stage", "exit_code", "retryable",
)  # fmt: skip
"""What a cell of a report takes from its outcome as it is."""
Json = dict[str, Any]


def collect(
    state: StateReader,
    told: SummaryDocument,
    pages: Mapping[int, str] | None = None,
    work: Workspace | None = None,
) -> Json:
    """Everything that a report shows. Only reads, so it may run beside the sweep.

    `pages`: where the pages of traces are, by their measurements; `work`: the folders with logs and
    evidence, if they are on this machine.
    """
    info, summary = told.info, told.summary
    data = SweepData(state, info)
    grid = Grid(data)
    ordered = sorted(data.outcomes.values(), key=grid.place)
    places = {one.cell: place for place, one in enumerate(ordered)}
    history = History(places, state.events(info.id))
    benches = {one.cell: one for one in state.benches(info.id)}
    tunings: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for one in state.tunings():
        tunings[f"{one.model}@{one.target}"][one.name] = None
    views = _Cells(data, grid, history, benches, pages or {}, work, tunings)
    cells = [views.view(one) for one in ordered]
    return known(
        schema=SCHEMA,
        heading=_heading(state, told),
        totals=totals(cells, len(grid.rows), summary),
        statuses=[{"name": str(status), **asdict(look)} for status, look in LOOKS.items()],
        causes={str(kind): asdict(cause) for kind, cause in CAUSES.items()},
        columns=grid.columns,
        rows=grid.rows,
        cells=cells,
        policies=[json.loads(policy) for policy in views.policies],
        keys=list(views.keys),
        owners=list(history.owners),
        logs=list(views.logs),
        timeline=history.timeline(),
        failures=[
            {**_cause(group, places), "since": told.since_when(group)} for group in summary.groups
        ],
        rates=pass_rates(cells, grid.rows),
        slowest=slowest(cells, grid.rows),
        largest=largest(cells),
        comparison=_compared(told),
    )


def _cause(group: FailureGroup, places: Mapping[str, int]) -> Json:
    return {
        "failure": str(group.failure),
        "text": masked(group.text),
        "hint": masked(plain_text(group.hint)),
        "models": len(group.models),
        "cells": [places[cell] for cell in group.cells],
        "exports": [places[cell] for cell in group.exports],
    }


def _compared(told: SummaryDocument) -> Json | None:
    """With another sweep, without unchanged cells."""
    if (comparison := told.since) is None:
        return None
    listed = [
        one
        for one in comparison.changes
        if one.verdict is not ChangeKind.UNCHANGED or any(each.clear for each in one.latency)
    ]
    changes = [
        masked_json(
            known(
                **asdict(one),
                deltas=_deltas(one),
                slower=one.slower or None,
                accuracy=one.accuracy,
                since=told.failing.get(one.cell),
            )
        )
        for one in listed
    ]
    return {
        "before": comparison.before,
        "after": comparison.after,
        "counts": comparison.counts(),
        "meanings": {str(verdict): text for verdict, text in MEANINGS.items()},
        "changes": changes,
    }


def _deltas(one: Change) -> list[str]:
    latency = [str(change) for change in one.latency]
    if one.before is None or one.after is None or one.verdict is not ChangeKind.CHANGED:
        return [*one.weaker, *latency]
    return [*one.weaker, *latency, *deltas(one.before, one.after)]


def _place(listed: dict[str, int], value: str) -> int:
    """The place of a value in a list without repetitions."""
    return listed.setdefault(value, len(listed))


@dataclass(slots=True)
class _Cells:
    """Puts together what is known of each cell."""

    data: SweepData
    grid: Grid
    history: History
    benches: Mapping[str, Bench]
    pages: Mapping[int, str]
    work: Workspace | None
    tunings: Mapping[str, Iterable[str]]
    """The names of those of each model and target."""
    policies: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    logs: dict[str, int] = field(default_factory=dict)

    def view(self, one: Outcome) -> Json:
        """A cell or export: its place in the grid and the content of its panel."""
        row, column = self.grid.place(one)
        rungs, policy = _rungs(one), self.data.planned.policy(one.cell)
        log = masked(plain_text(one.log_tail)[-LOG_LENGTH:]) if one.log_tail else None
        measured = self.data.measurements[one.tree or ""]
        timed = [other for other in measured if other.kind is MeasurementKind.BENCHMARK]
        opening, sharing = opening_of(one.evidence), sharing_of(one.evidence)
        ran = run_on(one.evidence)
        # What verifying the package again came to, where it has not always held.
        again = failures_of(self.work.settings, [one.tree]) if self.work else {}
        return known(
            row=row,
            column=column,
            id=one.cell,
            **{name: getattr(one, name) for name in _COPIED},
            message=_masked(one.message),
            hint=_masked(one.hint),
            log=None if log is None else _place(self.logs, log),
            policy=_place(self.policies, json.dumps(policy, sort_keys=True)) if policy else None,
            rungs=rungs,
            level=level_of(rungs),
            proof=self._proof(one),
            run_on=known(name=_masked(str(ran)), where=ran.where, why=_masked(ran.why))
            if ran
            else None,
            again=_masked(again.get(one.tree or "")),
            notices=[_masked(notice) for notice in notices_of(one.evidence)],
            opening=asdict(opening) if opening else None,
            sharing=asdict(sharing) if sharing else None,
            benchmarks=[masked_json(view_of(other)) for other in timed],
            comparisons=[masked_json(told) for told in map(comparison_of, measured) if told],
            unmeasured=self._unmeasured(one),
            traces=[self._trace(other) for other in measured if other.id in self.pages],
            tunings=list(self.tunings.get(one.cell.partition("+")[0], ())),
            page=package_page(self.data.info.feed, one.package, one.version)
            if one.status is Status.PUBLISHED
            else None,
            files=self._files(one),
            detail=masked_json(one.detail),
            stages=[self._stage(run) for run in self.data.runs[one.cell]],
            steps=self.history.steps.get(one.cell),
        )

    def _files(self, one: Outcome) -> dict[str, str]:
        """What this machine has of a cell: log, kept package, later evidence."""
        if self.work is None:
            return {}
        places = {"log": self.work.log_of(self.data.info.stamp, one.cell)}
        if one.status.failed:
            places["kept package"] = self.work.kept / one.package / one.version
        if one.tree:
            places["later evidence"] = self.work.evidence_of(one.tree)
        return {name: str(path.absolute()) for name, path in places.items() if path.exists()}

    def _trace(self, one: Measurement) -> Json:
        level = str(one.protocol.get("level", ""))
        return {**masked_json(view_of(one)), "level": level, "page": self.pages[one.id]}

    def _proof(self, one: Outcome) -> Json | None:
        """What it was judged on, and how well it agrees."""
        proof = judged_of(one)
        if proof is None:
            return None
        figure = "" if proof.snr is None else f"{proof.snr:g} dB"
        if proof.agreement is not None:
            figure = f"{100 * proof.agreement:.3g}%"
        told = {"samples": _masked(proof.samples), "told": _masked(str(proof))}
        return {**told, "kind": proof.kind, "figure": figure}

    def _unmeasured(self, one: Outcome) -> str | None:
        """Why a benchmark that was asked for is not there."""
        bench = self.benches.get(one.cell)
        if bench is None or bench.state is BenchState.MEASURED or not one.status.done:
            return None
        if bench.state is BenchState.FAILED:
            return _masked(bench.message)
        return f"waits for a machine that offers {' '.join(bench.needs)}"

    def _stage(self, run: StageRun) -> Json:
        saved = self.data.seconds.get(run.key, 0.0) if run.reused else 0.0
        return known(
            stage=run.stage,
            component=run.component,
            reused=run.reused,
            seconds=round(run.seconds, 3),
            saved=round(saved, 3),
            bytes=run.bytes,
            memory=run.peak_memory,
            key=_place(self.keys, run.key),
        )


def _masked(text: str | None) -> str | None:
    return None if text is None else masked(plain_text(text))


def _rungs(one: Outcome) -> list[Json]:
    found = []
    for rung in rungs_of(one):
        told = masked_json(dict(rung))
        if len(json.dumps(told.get("evidence"))) > _EVIDENCE_LENGTH:
            told["evidence"] = {"left out": "too long for a report; it is in build.json"}
        found.append(told)
    return found


def _heading(state: StateReader, told: SummaryDocument) -> Json:
    """Which sweep it is, when it ran and how it ended."""
    info, summary, duration = told.info, told.summary, told.duration
    settings = {name: value for name, value in info.settings.items() if value and name != "feed"}
    code = info.exit_code
    if code == Exit.OK and summary.groups:
        code = int(Exit.CELLS_FAILED)  # the last run took up only a part of the sweep
    return known(
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
    return EXITS.get(code, EXITS[now]).replace("`", "")
