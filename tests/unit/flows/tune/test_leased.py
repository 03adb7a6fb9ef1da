"""Tunings on a fleet: one machine measures under a lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from flows.tune import leased, tuning
from flows.tune.leased import tuning_kind
from flows.tune.record import Kept, Recorded, Tuning, planned, recorded
from matrix.errors import Exit
from matrix.model import Cell, Plan
from matrix.trials import TuningStatus
from state.records import BenchState, Lease
from state.state import State
from tests.states.samples import begin, take
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model
from tests.tunings.fakes import PROTOCOL, Play
from workers.measure.result import this_machine

STAMP = "20260609"
LIMIT = 30.0


def plan() -> Plan:
    return make_plan(small_model(cells=1))


def tuned(cell: Cell) -> Tuning:
    return Tuning(
        name=STAMP, model=cell.model.name, target=cell.target.label, cell=cell, engine="fake",
        space="0" * 64, protocol=PROTOCOL, seed=1, min_gain=5.0,
    )  # fmt: skip


@dataclass
class FakePlace:
    """Stands for all that a machine measures with."""

    work: Callable[[FakePlace, Kept], object]

    def tune(self, kept: Kept, budget: float | None) -> None:
        self.work(self, kept)


def run(
    harness: SweepHarness,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[FakePlace, Kept], object],
    slots: int = 1,
) -> Any:
    one = plan()
    rows = [planned(tuned(cell), at) for at, cell in enumerate(one.cells())]
    harness.state.plan_tunings(STAMP, rows)
    monkeypatch.setattr(leased, "Workplace", lambda *_tools, **_more: FakePlace(work))
    return harness.sweep(
        one, slots=slots, kind=tuning_kind, recorded={"tuning": {}}, bench=True,
        warmup=0, iterations=3, sessions=1,
    )  # fmt: skip


def found(state: State) -> Recorded:
    (one,) = recorded(state, STAMP)
    return one


def states(harness: SweepHarness) -> list[BenchState]:
    assert harness.begun is not None
    return [one.state for one in harness.state.benches(harness.begun.info.id)]


def test_a_tuning_that_fails_is_told_and_leaves_nobody_waiting(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(_place: FakePlace, kept: Kept) -> None:
        kept.change(status=TuningStatus.FAILED, message="the baseline does not hold")

    summary = run(harness, monkeypatch, work)
    assert states(harness) == [BenchState.FAILED]
    assert summary.exit_code() is Exit.CELLS_FAILED
    assert "the baseline does not hold" in "\n".join(summary.lines())


def test_a_tuning_that_is_done_is_ticked_off_without_a_measurement(
    harness: SweepHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell,) = plan().cells()
    harness.state.plan_tunings(STAMP, [planned(tuned(cell), 0)])
    (row,) = harness.state.tunings(STAMP)
    harness.state.keep_tuning(replace(row, status=TuningStatus.DONE))

    def work(_place: FakePlace, _kept: Kept) -> None:
        raise AssertionError("it was done")

    assert run(harness, monkeypatch, work).measured == 1


def _lease(state: State) -> Lease:
    return take(state, begin(state))


def _moved(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    machine = replace(this_machine(), name=name)
    monkeypatch.setattr(tuning, "this_machine", lambda: machine)


def test_a_machine_that_takes_over_measures_all_of_it_anew_and_says_so(
    stage: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage({19: 0.8, 20: 0.9})
    one.begin()
    one.held = _lease(one.state)
    one.hook = lambda op, _key, build: (
        KeyboardInterrupt() if (op, build) == ("bench_open", "opset20") else None
    )
    with pytest.raises(KeyboardInterrupt):
        one.run()
    before = one.found()
    assert before.trial("opset-19").verdict  # type: ignore[union-attr]
    old = [row.at for row in one.state.sessions(before.tuning.id)]
    one.hook = None
    _moved(monkeypatch, "the other lab")
    after = one.run()
    assert after.tuning.status is TuningStatus.DONE
    assert after.tuning.machine is not None
    assert after.tuning.machine.name == "the other lab"
    assert not {*old} & {row.at for row in one.state.sessions(after.tuning.id)}
    assert before.tuning.machine is not None
    began = f"it began on {before.tuning.machine.name} with"
    (note,) = [text for text in after.tuning.notes if began in text]
    assert note.startswith("measured again: ")
    assert note.endswith(f"({len(old)} sessions dropped)")
    assert one.planned == 2, "what another machine's graph and session told may not hold here"


def test_the_same_machine_goes_on_with_what_it_has(stage: Play) -> None:
    one = stage({19: 0.8})
    one.begin()
    one.held = _lease(one.state)
    one.run()
    first = one.found()
    again = one.run()
    assert one.sessions() == 0
    assert again.tuning.notes == first.tuning.notes


def test_without_a_lease_another_machine_is_refused(
    stage: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage({19: 0.8})
    one.played()
    _moved(monkeypatch, "the other lab")
    assert one.run().tuning.status is TuningStatus.FAILED
    assert "begin a new tuning" in one.found().tuning.message
