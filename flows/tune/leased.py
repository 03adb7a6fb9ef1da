"""A tuning on a fleet: one machine measures under a lease, others build ahead.

A batch of tunings on a fleet is a sweep of its baselines. Any machine builds them, as in every
sweep. Where a sweep with `--bench` measures a cell, a machine with the device tunes it instead. As
soon as that machine has planned its trials, idle machines build them for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from flows.measure.bench_run import BenchRun
from flows.slot.model_run import ModelRun
from flows.sweep.lifecycle import Sweep
from flows.tune.batch import read_tuning
from flows.tune.record import Kept, Step, Tuning, cell_of, tuning_of
from flows.tune.tools import Shown
from flows.tune.workplace import Workplace, settings_for
from machine.waits import Cancelled
from matrix.errors import MillError, UsageError
from matrix.model import Cell
from matrix.needs import is_measuring
from matrix.overlay import overlay
from matrix.trials import OVER, TuningStatus
from state.damage import reading
from state.records import Outcome
from state.tunings import TuningRow
from workers.errors import BuildFailed
from workers.host.watch import Watching


def tuning_kind(needs: Collection[str]) -> type[ModelRun | BenchRun]:
    """How a sweep of baselines works, as `flows.slot.loop.run_slots` asks for it."""
    return TuneRun if is_measuring(needs) else BuildAhead


@dataclass(slots=True)
class TuneRun(BenchRun):
    """The tunings of one model under one lease; nothing else is done in its slot."""

    def _measure(self, one: Outcome) -> None:
        """Tune a cell. A tuning that fails is tried again by the next run of the sweep."""
        state, lease = self.sweep.state, self.lease.lease
        row = next((row for row in _rows(self.sweep, self.name) if cell_of(row) == one.cell), None)
        if row is None:
            raise UsageError(f"no tuning of {self.sweep.plan.stamp} is about {one.cell}")
        kept = read_tuning(state, row, lease)
        try:
            if kept.tuning.status is not TuningStatus.DONE:
                self._tune(one, kept)
        finally:
            if not self.lease.gone.is_set():
                state.withdraw_builds(lease, one.cell)
        if kept.tuning.status is TuningStatus.FAILED:
            raise MillError(kept.tuning.message)
        state.measured(lease, one.cell, _told(kept.tuning), [])

    def _tune(self, one: Outcome, kept: Kept) -> None:
        sweep, lease = self.sweep, self.lease.lease
        place = Workplace(
            settings_for(sweep.settings, kept.tuning),
            self.slot.builder,
            Shown(now=partial(self.lease.say, one.cell)),
            self.context.ledger,
            reserves=True,
            cancel=self.lease.gone,
            log=self.context.log_of(one.cell),
            planned=lambda: sweep.state.offer_builds(lease, one.cell),
        )
        budget = self.context.tuning.get("budget")
        place.tune(kept, None if budget is None else float(budget))


@dataclass(slots=True)
class BuildAhead(ModelRun):
    """The baselines of one model, and later what its tuning will try, in the order of its plan."""

    def run(self) -> bool:
        """As every model; what is built ahead for a tuning changes nothing about that."""
        done = ModelRun.run(self)
        if done and any(_to_build(self.sweep, self.name)) and self._wait_for_slot():
            try:
                self._build_ahead()
            finally:
                self.lease.activity = None
                self.give_back_slot()
        return done

    def _build_ahead(self) -> None:
        begun: set[tuple[int, str]] = set()
        self.slot.builder.begin_model()
        while not self.lease.gone.is_set() and not self.context.is_ending():
            # Read again each time, because the measuring machine continues meanwhile.
            found = _to_build(self.sweep, self.name)
            new = next((one for one in found if one[:2] not in begun), None)
            if new is None:
                return
            tuning_id, key, cell = new
            begun.add((tuning_id, key))
            self._build(cell, key)

    def _build(self, cell: Cell, key: str) -> None:
        def say(text: str) -> None:
            self.lease.say(cell.id, f"ahead, {key}: {text}")

        watching = Watching(None, self.lease.gone, self.context.log_of(cell.id), say)
        try:
            self.slot.builder.build(cell, watching).release()
        except (BuildFailed, Cancelled):
            return  # the machine that measures finds out by itself, and gives the verdict


def _to_build(sweep: Sweep, model: str) -> Iterator[tuple[int, str, Cell]]:
    """What no machine has begun to build of the tunings of a model: tuning, key, cell."""
    for row in _rows(sweep, model):
        if row.status in OVER:
            continue
        begun = {one.key for one in sweep.state.trials(row.id)}
        for key, cell in _planned(row):
            if key not in begun:
                yield row.id, key, cell


def _planned(row: TuningRow) -> list[tuple[str, Cell]]:
    """The builds of a tuning, in the order of its plan; none as long as there is no plan."""
    with reading(f"the tuning {row.name} of {row.model}"):
        tuning = tuning_of(row)
    steps = [step for step in tuning.plan or () if not step.skip]
    found = [(step.key, _cell(tuning.cell, step)) for step in steps]
    return [(key, cell) for key, cell in found if cell is not None]


def _cell(base: Cell, step: Step) -> Cell | None:
    """What a trial builds; None: nothing that any machine can build without the device."""
    hypothesis = step.hypothesis
    if hypothesis.compiled:
        return None
    try:
        cell = overlay(base, hypothesis)
    except UsageError:
        return None
    return cell if cell.policy != base.policy else None


def _rows(sweep: Sweep, model: str) -> Iterator[TuningRow]:
    return (row for row in sweep.state.tunings(sweep.plan.stamp) if row.model == model)


def _told(tuning: Tuning) -> dict[str, Any]:
    """What the event of a tuning that has ended says."""
    runtime = tuning.runtime.name if tuning.runtime else ""
    told = {"on": runtime, "emulated": tuning.emulated, "champion": tuning.champion}
    return {**told, "tuned": str(tuning.status)}
