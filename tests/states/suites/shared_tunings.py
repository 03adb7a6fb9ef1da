"""Tunings of a fleet: written under a lease, measured side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from matrix.trials import TuningStatus
from state.errors import LeaseLost
from state.records import BenchState
from state.state import State
from tests.states.samples import ALIVE, FOREIGN, begin, cell, rows
from tests.states.suites.measurements import (
    NPU,
    begin_measuring,
    build_all,
    measured_rows,
    states,
    take_bench,
)
from tests.states.suites.tunings import planned, session, trial

BUILDS = frozenset({"engine:fake"})


class TestSharedTunings:
    def test_a_worker_that_has_lost_its_lease_writes_nothing(self, state: State) -> None:
        sweep = begin_measuring(state)
        build_all(state, sweep)
        late = state.lease(sweep.id, FOREIGN, 0.0, offers=frozenset({NPU}))
        now = take_bench(state, sweep)
        assert late is not None
        assert now is not None
        (row,) = planned(state)
        state.keep_trial(trial(row), now)
        running = replace(row, status=TuningStatus.RUNNING)
        for write in (
            lambda: state.keep_tuning(running, late),
            lambda: state.keep_trial(trial(row, "h2"), late),
            lambda: state.keep_session(session(row), late),
            lambda: state.forget_trials(row.id, late),
        ):
            with pytest.raises(LeaseLost):
                write()
        assert state.tunings()[0].status is TuningStatus.PLANNED
        assert [one.key for one in state.trials(row.id)] == ["h1"]
        state.keep_session(session(row), now)
        assert len(state.sessions(row.id)) == 1

    def test_what_was_measured_can_be_dropped(self, state: State) -> None:
        row, other = planned(state, 2)
        for one in (row, other):
            state.keep_trial(trial(one))
            state.keep_session(session(one))
            state.keep_session(session(one, 2))
        assert state.forget_trials(row.id) == 2
        assert (state.trials(row.id), state.sessions(row.id)) == ([], [])
        assert len(state.sessions(other.id)) == 2

    def test_what_was_measured_is_measured_again_if_somebody_says_so(self, state: State) -> None:
        sweep = begin_measuring(state, measured_rows(models=1)[:1])
        build_all(state, sweep)
        held = take_bench(state, sweep)
        assert held is not None
        state.measured(held, cell(), {}, [])
        state.release(held, done=True)
        state.measure_again(sweep.id, [cell()])
        assert states(state, sweep) == {cell(): BenchState.WANTED}
        begin_measuring(state, measured_rows(models=1)[:1])
        assert take_bench(state, sweep) is not None

    def test_measuring_a_model_for_hours_keeps_no_other_sweep_from_building_it(
        self, state: State
    ) -> None:
        sweep = begin_measuring(state)
        build_all(state, sweep)
        assert take_bench(state, sweep) is not None
        cells = [replace(row, needs=BUILDS) for row in rows(1, stamp="other")]
        other = begin(state, cells, stamp="other")
        assert state.lease(other.id, ALIVE, 60.0) is not None
        third = begin(state, [replace(row, version="0.0.0-x") for row in cells[:1]], stamp="third")
        assert state.lease(third.id, ALIVE, 60.0) is None, "two do not build it at once"
