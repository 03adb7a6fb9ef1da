from __future__ import annotations

import pytest

from matrix.status import FailureClass, Status
from state.records import Facts, StageRun, SweepInfo
from state.state import State
from tests.states.samples import (
    ALIVE,
    DEAD,
    TREE,
    add_stages,
    begin,
    cell,
    model,
    rows,
    stage,
    take,
)


def ended(state: State, stamp: str, *runs: StageRun, models: int = 1) -> SweepInfo:
    """A sweep that has published everything."""
    info = begin(state, rows(models, stamp=stamp), stamp=stamp)
    while lease := state.lease(info.id, ALIVE, 60.0):
        if runs and lease.model == model(0):
            add_stages(state, lease, *runs)
        for one in list(state.outcomes(info.id, model=lease.model)):
            state.record(lease, info.id, one.cell, Status.PUBLISHED, Facts(tree=TREE))
        state.release(lease, done=True)
    state.end(info.id, 0)
    return info


class TestPruning:
    def test_a_sweep_goes_with_all_that_is_recorded_of_it(self, state: State) -> None:
        first = ended(state, "one", stage("export", "b" * 64))
        second = ended(state, "two", stage("export", "c" * 64))
        assert state.remove_sweep(first.id)
        assert [one.stamp for one in state.sweeps()] == ["two"]
        assert list(state.events(first.id)) == []
        assert list(state.outcomes(first.id)) == []
        assert state.stage_runs(first.id) == []
        assert len(list(state.outcomes(second.id))) == 2
        assert len(state.stage_runs(second.id)) == 1
        assert not state.remove_sweep(first.id)
        again = begin(state, stamp="one")
        assert again.created

    def test_the_cost_of_a_stage_stays_while_its_result_is_reused(self, state: State) -> None:
        ran = stage("export", "b" * 64, seconds=7.0, peak_memory=5)
        reused = stage("export", "b" * 64, seconds=0.0, reused=True)
        first, second = ended(state, "one", ran), ended(state, "two", reused)
        before = state.unit_costs()
        assert [(one.seconds, one.peak_memory) for one in before] == [(7.0, 5)]
        assert state.remove_sweep(first.id)
        (after,) = state.unit_costs()
        assert (after.seconds, after.peak_memory, after.sweep_id) == (7.0, 5, 0)
        assert state.real_seconds(second.id) == {ran.key: 7.0}
        third = ended(state, "three", stage("export", "c" * 64))
        assert state.remove_sweep(second.id)
        assert [one.sweep_id for one in state.unit_costs()] == [third.id]

    @pytest.mark.parametrize("why", ["runs", "held"])
    def test_what_goes_on_stays(self, state: State, why: str) -> None:
        info = ended(state, "one")
        begin(state, rows(2, stamp="one"), stamp="one")
        if why == "held":
            take(state, info)
            state.end(info.id, 130)
        assert not state.remove_sweep(info.id)
        assert len(list(state.outcomes(info.id))) > 0

    def test_who_died_holds_nothing(self, state: State) -> None:
        info = ended(state, "one")
        begin(state, rows(2, stamp="one"), stamp="one")
        take(state, info, DEAD)
        state.end(info.id, 130)
        assert state.remove_sweep(info.id)

    def test_the_newest_record_of_each_published_cell_is_known(self, state: State) -> None:
        first, second = ended(state, "one", models=2), ended(state, "two", models=1)
        third = begin(state, rows(1, stamp="three"), stamp="three")
        facts = Facts(failure=FailureClass.DISK)
        state.record(None, third.id, cell(), Status.BUILD_FAILED, facts)
        assert state.newest_published() == {first.id, second.id}
        ended(state, "four", models=2)
        assert len(state.newest_published()) == 1
