from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from machine.processes import Process, end_in_order, ended_in_order
from matrix.status import FailureClass, Status
from state.leases import MAX_LOST, MAX_SILENT
from state.records import Facts, Kind, Remaining
from state.state import State
from tests.states.samples import (
    ALIVE,
    DEAD,
    FOREIGN,
    HOUR,
    TREE,
    begin,
    cell,
    model,
    rows,
    sql,
    status,
    take,
)


def later(state: State, seconds: float) -> None:
    """Let so many seconds pass for the leases."""
    sql(state, "UPDATE lease SET renewed_at = renewed_at - :s, expires_at = expires_at - :s",
        s=seconds)  # fmt: skip


class TestLeases:
    def test_longest_first_then_by_position(self, state: State) -> None:
        sweep = begin(state, rows(4), estimates=[1.0, 9.0, 1.0, 5.0])
        order = [take(state, sweep).model for _ in range(4)]
        assert order == [model(1), model(3), model(0), model(2)]
        assert state.lease(sweep.id, ALIVE, 60) is None
        assert state.remaining(sweep.id) == Remaining(leased=4)

    def test_tokens_only_grow(self, state: State) -> None:
        sweep = begin(state)
        tokens = []
        for _ in range(5):
            lease = take(state, sweep)
            tokens.append(lease.token)
            state.release(lease, done=False)
        assert tokens == sorted(set(tokens))

    def test_no_two_sweeps_hold_a_model_at_once(self, state: State) -> None:
        first = begin(state, rows(1))
        second = begin(state, rows(1, stamp="20260610"), stamp="20260610")
        lease = take(state, first)
        assert state.lease(second.id, ALIVE, 60) is None
        assert state.remaining(second.id).open == 1
        state.release(lease, done=True)
        assert take(state, second).model == lease.model

    def test_threads_share_the_work_without_overlap(self, state: State) -> None:
        sweep = begin(state, rows(40))
        start = threading.Barrier(8)

        def drain() -> list[str]:
            start.wait()
            taken = []
            while (lease := state.lease(sweep.id, ALIVE, 60)) is not None:
                taken.append(lease.model)
                state.record(lease, sweep.id, f"{lease.model}@qnn_npu", Status.BUILDING)
            return taken

        with ThreadPoolExecutor(8) as pool:
            drains = [pool.submit(drain) for _ in range(8)]
        taken = [name for one in drains for name in one.result()]
        assert sorted(taken) == sorted(model(number) for number in range(40))

    def test_only_the_models_asked_for(self, state: State) -> None:
        sweep = begin(state, rows(3))
        lease = state.lease(sweep.id, ALIVE, 60, among=[model(2)])
        assert lease is not None
        assert lease.model == model(2)
        assert state.lease(sweep.id, ALIVE, 60, among=[model(2)]) is None
        assert state.lease(sweep.id, ALIVE, 60, among=[]) is None
        assert state.remaining(sweep.id, among=[model(2)]) == Remaining(leased=1)

    def test_a_heartbeat_keeps_a_lease_and_silence_loses_it(self, state: State) -> None:
        sweep = begin(state, rows(1))
        lease = take(state, sweep, FOREIGN, ttl=0)
        assert state.renew(lease, 60), "late, but nobody was faster"
        assert state.lease(sweep.id, ALIVE, 60) is None
        assert state.renew(lease, 0)
        taken = take(state, sweep)
        assert taken.model == lease.model
        assert taken.attempt == 2
        assert not state.renew(lease, 60)
        assert not state.release(lease, done=True)
        assert state.renew(taken, 60)

    def test_a_dead_process_here_loses_at_once(self, state: State) -> None:
        sweep = begin(state, rows(1))
        dead = take(state, sweep, DEAD, ttl=HOUR)
        state.record(dead, sweep.id, cell(), Status.BUILDING)
        taken = take(state, sweep)
        assert taken.model == dead.model
        assert status(state, sweep) is Status.PLANNED
        lost = list(state.events(sweep.id, kind=Kind.LOST))
        assert len(lost) == 1
        assert lost[0].data is not None
        assert lost[0].data["why"] == "process gone"

    def test_a_live_process_keeps_its_lease(self, state: State) -> None:
        sweep = begin(state, rows(1))
        take(state, sweep, ALIVE)
        assert state.lease(sweep.id, FOREIGN, 60) is None

    def test_published_cells_survive_a_take_over(self, state: State) -> None:
        sweep = begin(state, rows(1))
        dead = take(state, sweep, DEAD)
        state.record(dead, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
        state.record(dead, sweep.id, cell(target="mlas_cpu"), Status.PUBLISHING)
        take(state, sweep)
        assert status(state, sweep) is Status.PUBLISHED
        assert status(state, sweep, cell(target="mlas_cpu")) is Status.PLANNED

    def test_a_lease_expires_although_the_clock_was_set_back(self, state: State) -> None:
        sweep = begin(state, rows(1))
        lost = take(state, sweep, FOREIGN, ttl=60)
        sql(
            state,
            "UPDATE lease SET renewed_at = renewed_at + :h, expires_at = expires_at + :h",
            h=HOUR,
        )
        assert state.lease(sweep.id, ALIVE, 60) is None, "its holder may live: one more ttl"
        (holder,) = state.leases(sweep.id)
        assert holder.expires_at - state.now() <= 60
        assert state.renew(lost, 60)
        later(state, 61)
        assert state.lease(sweep.id, ALIVE, 60) is None, "nobody renews: was the database away?"
        later(state, 61)
        assert take(state, sweep).token > lost.token

    @pytest.mark.parametrize("seconds", [61, HOUR], ids=["away", "clock set forward"])
    def test_an_outage_of_the_database_costs_nobody_a_lease(
        self, state: State, seconds: float
    ) -> None:
        sweep = begin(state, rows(2))
        first, second = (take(state, sweep, FOREIGN) for _ in range(2))
        later(state, seconds)
        assert all(holder.expired for holder in state.leases(sweep.id))
        assert state.lease(sweep.id, ALIVE, 60) is None
        assert state.renew(first, 60)
        assert state.lease(sweep.id, ALIVE, 60) is None, "the other one is as late as the first"
        assert state.renew(second, 60)

    def test_a_heartbeat_that_is_late_speaks_for_others_once(self, state: State) -> None:
        sweep = begin(state, rows(2))
        silent, late = (take(state, sweep, FOREIGN) for _ in range(2))
        later(state, 61)
        assert state.renew(late, 60)
        for _ in range(4):
            assert state.lease(sweep.id, ALIVE, 60) is None
            later(state, 15)
            assert state.renew(late, 60)
        later(state, 1)
        assert take(state, sweep).model == silent.model

    def test_who_is_silent_while_others_renew_has_one_term(self, state: State) -> None:
        sweep = begin(state, rows(2))
        silent, other = (take(state, sweep, FOREIGN) for _ in range(2))
        for _ in range(4):
            assert state.lease(sweep.id, ALIVE, 60) is None
            later(state, 15)
            assert state.renew(other, 60)
        later(state, 1)
        assert take(state, sweep).model == silent.model

    def test_a_model_that_kills_three_slots_is_poison(self, state: State) -> None:
        sweep = begin(state, rows(2))
        first = take(state, sweep, DEAD)
        state.record(first, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
        for _ in range(2):
            assert take(state, sweep, DEAD).model == model(0)
        assert take(state, sweep).model == model(1)
        assert state.remaining(sweep.id) == Remaining(leased=1, poison=1)
        assert status(state, sweep) is Status.PUBLISHED
        found = state.outcome(sweep.id, cell(target="mlas_cpu"))
        assert found is not None
        assert found.status is Status.BUILD_FAILED
        assert found.failure is FailureClass.CRASH
        assert found.detail is not None
        assert len(found.detail["lost_leases"]) == 3
        assert state.newest_event(sweep.id, Kind.POISON)

    def test_a_lease_that_runs_out_is_handed_over_and_blames_nobody(self, state: State) -> None:
        """The database was away, or the machine slept: the holder comes back."""
        sweep = begin(state, rows(1))
        late = take(state, sweep, FOREIGN, ttl=0)
        for number in range(2 * MAX_SILENT):
            newer = take(state, sweep, FOREIGN, ttl=0)
            assert newer.attempt == number + 2
            lost = state.release(late, done=True) if number % 2 else state.renew(late, 60)
            assert not lost
            late = newer
        assert state.remaining(sweep.id) == Remaining(leased=1)

    def test_holders_that_fall_silent_for_good_end_the_model_some_day(self, state: State) -> None:
        sweep = begin(state, rows(1))
        for _ in range(MAX_SILENT):
            take(state, sweep, FOREIGN, ttl=0)
        assert state.lease(sweep.id, ALIVE, 60) is None
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert (found.status, found.failure) == (Status.BUILD_FAILED, FailureClass.CRASH)
        assert f"{MAX_SILENT} processes fell silent" in str(found.message)
        assert "machines" in str(found.hint)

    def test_a_process_that_ended_in_order_blames_nobody(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Process, "current", lambda: DEAD.process)
        sweep = begin(state, rows(1))
        for _ in range(2 * MAX_LOST):
            take(state, sweep, DEAD, ttl=HOUR)
            end_in_order()  # interrupted, or the database was away for too long
        assert take(state, sweep).model == model(0)
        assert not ended_in_order(DEAD.process)

    def test_two_clocks_on_one_file_take_nothing_from_a_process_that_runs(
        self, state: State
    ) -> None:
        sweep = begin(state, rows(2))
        mine = take(state, sweep, ALIVE)
        take(state, sweep, FOREIGN)  # it renews, so the database was not away
        for hours in (-1, 2):
            shift = "renewed_at = renewed_at + :by, expires_at = expires_at + :by"
            mine_only = f"UPDATE lease SET {shift} WHERE token = :token"
            sql(state, mine_only, by=hours * HOUR, token=mine.token)
            taken = state.lease(sweep.id, FOREIGN, 60)
            if not state.database.sqlite:  # its server has the only clock
                assert (taken is None) is (hours > 0)
                return
            assert taken is None
        assert state.renew(mine, 60)

    def test_poison_can_be_retried(self, state: State) -> None:
        sweep = begin(state, rows(1))
        for _ in range(3):
            take(state, sweep, DEAD)
        assert state.lease(sweep.id, ALIVE, 60) is None
        assert begin(state, rows(1)).id == sweep.id
        assert state.remaining(sweep.id).poison == 1, "beginning again is not asking for it"
        assert len(state.retry(sweep.id, [FailureClass.CRASH])) == 2
        assert state.remaining(sweep.id).todo == 1
        take(state, sweep, DEAD)
        assert take(state, sweep).model == model(0), "it may kill three slots again"

    def test_releases_do_not_count_as_lost_leases(self, state: State) -> None:
        sweep = begin(state, rows(1))
        for attempt in range(1, 6):
            lease = take(state, sweep)
            assert lease.attempt == attempt
            state.record(lease, sweep.id, cell(), Status.BUILDING)
            assert state.release(lease, done=False)
            assert status(state, sweep) is Status.PLANNED
        assert state.remaining(sweep.id) == Remaining(todo=1)

    def test_finished_work_is_not_leased_again(self, state: State) -> None:
        sweep = begin(state, rows(1))
        lease = take(state, sweep)
        assert state.release(lease, done=True)
        assert state.lease(sweep.id, ALIVE, 60) is None
        assert state.remaining(sweep.id) == Remaining(done=1)
        assert not state.release(lease, done=True)

    def test_holders_are_listed(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        (holder,) = state.leases()
        assert (holder.model, holder.token, holder.owner) == (lease.model, lease.token, "slot-1")
        assert not holder.expired
        assert state.leases(sweep.id + 1) == []

    @pytest.mark.parametrize("publish", [True, False])
    def test_verified_is_final_only_without_publishing(self, state: State, publish: bool) -> None:
        sweep = begin(state, rows(1), publish=publish)
        lease = take(state, sweep)
        state.record(lease, sweep.id, cell(), Status.VERIFIED, Facts(tree=TREE))
        state.release(lease, done=False)
        assert status(state, sweep) is (Status.PLANNED if publish else Status.VERIFIED)
