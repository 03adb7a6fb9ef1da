"""A tuning on a fleet, under a lease.

A batch of tunings on a fleet is a sweep of its baselines. Any machine builds them, as in every
sweep. Where a sweep with `--bench` measures a cell, a machine with the device tunes it instead.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from flows.measure.bench_run import BenchRun
from flows.slot.model_run import ModelRun
from flows.tune.batch import read_tuning
from flows.tune.place import Shown
from flows.tune.record import Kept, cell_of
from flows.tune.workplace import Workplace, settings_for
from matrix.errors import MillError, UsageError
from matrix.needs import is_measuring
from matrix.trials import TuningStatus
from state.records import Outcome


def tuning_kind(needs: Collection[str]) -> type[ModelRun | BenchRun]:
    """How a sweep of baselines works, as `flows.slot.slots.run_slots` asks for it."""
    return TuneRun if is_measuring(needs) else ModelRun


@dataclass(slots=True)
class TuneRun(BenchRun):
    """The tunings of one model under one lease; nothing else is done in its slot."""

    def _measure(self, one: Outcome) -> None:
        """Tune a cell. A tuning that fails is tried again by the next run of the sweep."""
        state, lease = self.sweep.state, self.lease.lease
        rows = (row for row in state.tunings(self.sweep.plan.stamp) if row.model == self.name)
        row = next((row for row in rows if cell_of(row) == one.cell), None)
        if row is None:
            raise UsageError(f"no tuning of {self.sweep.plan.stamp} is about {one.cell}")
        kept = read_tuning(state, row, lease)
        if kept.tuning.status is not TuningStatus.DONE:
            self._tune(one, kept)
        if kept.tuning.status is TuningStatus.FAILED:
            raise MillError(kept.tuning.message)
        tuning = kept.tuning
        told = {
            "on": tuning.runtime.name if tuning.runtime else "",
            "emulated": tuning.emulated,
            "champion": tuning.champion,
            "tuned": str(tuning.status),
        }
        state.measured(lease, one.cell, told, [])

    def _tune(self, one: Outcome, kept: Kept) -> None:
        sweep = self.sweep
        place = Workplace(
            settings_for(sweep.settings, kept.tuning),
            self.slot.builder,
            Shown(now=partial(self.lease.say, one.cell)),
            self.context.ledger,
            reserves=True,
            cancel=self.lease.gone,
            log=self.context.log_of(one.cell),
        )
        budget = self.context.tuning.get("budget")
        place.tune(kept, None if budget is None else float(budget))
