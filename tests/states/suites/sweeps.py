from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from machine.processes import Process
from matrix.codec import to_json
from matrix.status import FailureClass, Status
from state.errors import StateError
from state.records import Facts, Kind, Remaining
from state.state import State
from tests.states.samples import (
    ALIVE,
    DEAD,
    FOREIGN,
    TREE,
    begin,
    cell,
    counts,
    model,
    rows,
    status,
    take,
)


class TestSweeps:
    def test_begin_plans_every_cell(self, state: State) -> None:
        sweep = begin(state, rows(3, skip={cell(1): "too large"}))
        assert sweep.created
        assert sweep.settings == {"jobs": 2}
        assert counts(state, sweep.id) == {Status.PLANNED: 5, Status.SKIPPED: 1}
        found = state.outcome(sweep.id, cell(1))
        assert found is not None
        assert found.message == "too large"
        (begun,) = state.events(sweep.id)
        assert (begun.kind, begun.id) == (Kind.BEGUN, sweep.run)
        process = to_json(Process.current())
        numbers = {"cells": 6, "models": 3, "added": 6, "resumed": 0}
        assert begun.data == {**numbers, "process": process}

    def test_a_model_without_an_open_cell_is_done(self, state: State) -> None:
        skip = {row.cell: "no" for row in rows(1)}
        sweep = begin(state, rows(2, skip=skip))
        assert state.remaining(sweep.id) == Remaining(todo=1, done=1)

    def test_begin_again_changes_nothing_that_is_done(self, state: State) -> None:
        first = begin(state)
        lease = take(state, first)
        state.record(lease, first.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
        state.record(lease, first.id, cell(target="mlas_cpu"), Status.VERIFY_FAILED)
        state.release(lease, done=True)
        state.end(first.id, 1)
        again = begin(state)
        assert again.id == first.id
        assert not again.created
        assert again.ended_at is None
        assert counts(state, again.id) == {
            Status.PUBLISHED: 1,
            Status.VERIFY_FAILED: 1,
            Status.PLANNED: 2,
        }
        assert state.remaining(again.id) == Remaining(todo=1, done=1)

    def test_stamps_and_feeds_are_apart(self, state: State) -> None:
        ids = {
            state.begin(stamp, feed, rows(1), {}, {}, {}).id
            for stamp in ("a", "b")
            for feed in ("x", "y")
        }
        assert len(ids) == 4
        found = state.find_sweep("a", "y")
        assert found is not None
        assert (found.stamp, found.feed) == ("a", "y")
        assert state.find_sweep("c") is None
        newest = state.find_sweep()
        assert newest is not None
        assert newest.id == state.sweeps()[0].id
        assert {one.id for one in state.sweeps()} == ids

    def test_a_later_plan_may_add_cells_and_models(self, state: State) -> None:
        begin(state, rows(1, targets=["qnn_npu"]))
        sweep = begin(state, rows(2))
        assert counts(state, sweep.id) == {Status.PLANNED: 4}
        assert state.remaining(sweep.id).todo == 2

    def test_a_smaller_plan_takes_nothing_away(self, state: State) -> None:
        begin(state, rows(2))
        sweep = begin(state, rows(1))
        assert counts(state, sweep.id) == {Status.PLANNED: 4}

    def test_what_a_dead_run_left_is_planned_again(self, state: State) -> None:
        sweep = begin(state, rows(1))
        dead = take(state, sweep, DEAD, ttl=3600)
        state.record(dead, sweep.id, cell(), Status.PUBLISHING, Facts(tree=TREE))
        begin(state, rows(1))
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.status is Status.PLANNED
        assert found.tree is None
        assert found.attempts == 1
        assert state.leases() == []

    def test_beginning_again_makes_no_poison(self, state: State) -> None:
        sweep = begin(state, rows(1))
        for _ in range(6):
            take(state, sweep, DEAD)
            begin(state, rows(1))
        assert state.remaining(sweep.id) == Remaining(todo=1)

    def test_the_run_that_was_killed_is_not_the_third_slot(self, state: State) -> None:
        sweep = begin(state, rows(1))
        for _ in range(3):
            take(state, sweep, DEAD)
        begin(state, rows(1))
        assert state.remaining(sweep.id) == Remaining(todo=1)

    def test_what_a_live_run_holds_is_left_alone(self, state: State) -> None:
        sweep = begin(state, rows(2))
        lease = take(state, sweep, FOREIGN)
        state.record(lease, sweep.id, cell(), Status.BUILDING)
        begin(state, rows(2))
        assert status(state, sweep) is Status.BUILDING
        assert state.remaining(sweep.id) == Remaining(todo=1, leased=1)
        state.record(lease, sweep.id, cell(), Status.BUILT)

    def test_only_open_cells_can_be_renamed(self, state: State) -> None:
        sweep = begin(state, rows(1))
        renamed = [replace(row, package="winml-cli-models") for row in rows(1)]
        begin(state, renamed)
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.package == "winml-cli-models"
        state.record(None, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
        with pytest.raises(StateError, match="already published") as refused:
            begin(state, rows(1))
        assert "--stamp" in refused.value.hint
        found = state.outcome(sweep.id, cell(target="mlas_cpu"))
        assert found is not None
        assert found.package == "winml-cli-models", "all or nothing"

    def test_a_cell_in_work_cannot_be_renamed(self, state: State) -> None:
        sweep = begin(state, rows(1))
        lease = take(state, sweep, FOREIGN)
        state.record(lease, sweep.id, cell(), Status.BUILDING)
        with pytest.raises(StateError, match="already building"):
            begin(state, [replace(row, version="0.0.0-other") for row in rows(1)])

    def test_a_catalog_may_begin_or_cease_to_skip_a_cell(self, state: State) -> None:
        sweep = begin(state, rows(1, skip={cell(): "broken"}))
        begin(state, rows(1))
        assert status(state, sweep) is Status.PLANNED
        begin(state, rows(1, skip={cell(): "broken again"}))
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert (found.status, found.message) == (Status.SKIPPED, "broken again")

    def test_two_runs_begin_at_once(self, state: State) -> None:
        start = threading.Barrier(4)

        def run() -> int:
            start.wait()
            return begin(state, rows(20)).id

        with ThreadPoolExecutor(4) as pool:
            ids = [pool.submit(run) for _ in range(4)]
        assert len({one.result() for one in ids}) == 1
        assert counts(state, ids[0].result()) == {Status.PLANNED: 40}
        assert state.remaining(ids[0].result()).todo == 20

    def test_the_end_is_recorded(self, state: State) -> None:
        sweep = begin(state)
        state.end(sweep.id, 1)
        found = state.find_sweep()
        assert found is not None
        assert found.exit_code == 1
        assert found.ended_at is not None
        *_, last = state.events(sweep.id)
        assert last.kind is Kind.ENDED

    @pytest.mark.parametrize(
        ("classes", "among", "expected"),
        [
            ((), None, 3),
            ((FailureClass.NETWORK,), None, 1),
            ((FailureClass.NETWORK, FailureClass.EXPORT), None, 2),
            ((FailureClass.AUTH,), None, 0),
            ((), {cell(), cell(1, "mlas_cpu")}, 1),
            ((FailureClass.NETWORK,), {cell(1)}, 0),
            ((), (), 0),
        ],
    )
    def test_retry(
        self,
        state: State,
        classes: tuple[FailureClass, ...],
        among: Collection[str] | None,
        expected: int,
    ) -> None:
        sweep = begin(state)
        for name, failure in [
            (cell(), FailureClass.NETWORK),
            (cell(target="mlas_cpu"), FailureClass.EXPORT),
            (cell(1), FailureClass.CRASH),
        ]:
            state.record(None, sweep.id, name, Status.BUILD_FAILED, Facts(failure=failure))
        state.record(None, sweep.id, cell(1, "mlas_cpu"), Status.PUBLISHED, Facts(tree=TREE))
        begin(state)
        planned = state.retry(sweep.id, classes, among)
        assert len(planned) == expected
        assert counts(state, sweep.id).get(Status.PLANNED, 0) == expected
        for name in planned:
            found = state.outcome(sweep.id, name)
            assert found is not None
            assert (found.failure, found.retryable) == (None, None)
        models = {name.partition("@")[0] for name in planned}
        assert state.remaining(sweep.id).todo == len(models)

    def test_cancel_leaves_leased_cells_alone(self, state: State) -> None:
        sweep = begin(state, rows(2))
        lease = take(state, sweep, FOREIGN)
        state.record(lease, sweep.id, cell(), Status.BUILDING)
        assert state.cancel_open(sweep.id) == [cell(1, "mlas_cpu"), cell(1, "qnn_npu")]
        assert state.cancel_open(sweep.id) == []
        assert status(state, sweep) is Status.BUILDING
        assert state.remaining(sweep.id).todo == 1, "it can be resumed"
        begin(state, rows(2))
        assert status(state, sweep, cell(1)) is Status.PLANNED

    def test_cancelled_cells_can_be_taken_up_by_another_run(self, state: State) -> None:
        sweep = begin(state, rows(1))
        state.cancel_open(sweep.id)
        lease = take(state, sweep, ALIVE)
        state.record(lease, sweep.id, cell(), Status.BUILDING)
        assert status(state, sweep) is Status.BUILDING

    def test_an_unknown_sweep_is_reported(self, state: State) -> None:
        with pytest.raises(StateError, match="no sweep 7"):
            state.retry(7)
        with pytest.raises(StateError, match="no sweep 7"):
            state.cancel_open(7)
        assert state.lease(7, ALIVE, 60) is None
        assert counts(state, 7) == {}

    def test_a_cell_named_twice_changes_nothing(self, state: State) -> None:
        sweep = begin(state, rows(1))
        with pytest.raises(Exception, match=r"(?i)unique"):
            begin(state, [*rows(3), *rows(3)])
        assert counts(state, sweep.id) == {Status.PLANNED: 2}
        begin(state, rows(3))
        assert state.remaining(sweep.id).todo == 3
        assert take(state, sweep).model == model(0)
