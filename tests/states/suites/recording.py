from __future__ import annotations

from datetime import UTC, datetime

import pytest

from matrix.status import FAILED, FailureClass, Status
from state.errors import BadTransition, LeaseLost, StateError
from state.records import Facts, Kind
from state.state import State
from state.transitions import RUNNING, SOURCES
from tests.states.samples import FOREIGN, TREE, add_stages, begin, cell, sql, stage, status, take

_ROW = {
    "planned": "token = NULL, started_at = NULL, ended_at = NULL",
    "running": "token = 1, started_at = 1, ended_at = NULL",
    "ended": "token = NULL, started_at = NULL, ended_at = 1",
}


def put(state: State, sweep_id: int, value: Status) -> None:
    """A cell in any status, by force."""
    shape = "running" if value in RUNNING else "planned" if value is Status.PLANNED else "ended"
    failure = "'UNKNOWN'" if value in FAILED else "NULL"
    retryable = "FALSE" if value in FAILED else "NULL"
    sql(
        state,
        f"UPDATE outcome SET status = :status, {_ROW[shape]}, failure = {failure}, "
        f"retryable = {retryable}, message = 'x', tree = :tree, published_at = 1 "
        "WHERE sweep_id = :sweep AND cell = :cell",
        status=value.value,
        tree=TREE,
        sweep=sweep_id,
        cell=cell(),
    )


class TestRecording:
    def test_a_cell_goes_through_every_status(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        for step in (*RUNNING, Status.PUBLISHED):
            facts = Facts(tree=TREE) if step is Status.BUILT else Facts()
            state.record(lease, sweep.id, cell(), step, facts)
            assert status(state, sweep) is step
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.tree == TREE, "later steps leave what is known"
        assert found.attempts == 1
        assert found.token == lease.token
        assert found.started_at is not None
        assert found.ended_at is not None
        assert found.started_at <= found.ended_at
        assert found.published_at is not None
        said = [one.status for one in state.events(sweep.id) if one.cell == cell()]
        assert said == [*RUNNING, Status.PUBLISHED]

    def test_a_failure_keeps_its_evidence(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        facts = Facts(
            failure=FailureClass.MEMORY,
            stage="quan\0tize",
            exit_code=0xC0000005,
            message="out of\0 memory \ud800",
            hint="buy some",
            log_tail="x" * 100_000 + "the end",
            evidence={"peak": float("inf")},
            bytes=2**40,
            seconds=1.5,
        )
        state.record(lease, sweep.id, cell(), Status.BUILD_FAILED, facts)
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.failure is FailureClass.MEMORY
        assert found.stage == "quantize"
        assert found.exit_code == 0xC0000005
        assert found.message == "out of memory ?"
        assert found.log_tail is not None
        assert found.log_tail.endswith("the end")
        assert len(found.log_tail) == 16_000
        assert found.evidence == {"peak": "inf"}
        assert found.bytes == 2**40
        assert found.retryable is False
        *_, event = (one for one in state.events(sweep.id) if one.cell == cell())
        assert event.data is not None
        assert event.data["failure"] == "MEMORY"
        assert event.owner == lease.owner

    @pytest.mark.parametrize("failed", sorted(FAILED))
    def test_every_failure_has_a_class(self, state: State, failed: Status) -> None:
        sweep = begin(state)
        state.record(None, sweep.id, cell(), failed)
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.failure is not None

    def test_infrastructure_is_retryable(self, state: State) -> None:
        sweep = begin(state)
        facts = Facts(failure=FailureClass.NETWORK)
        state.record(None, sweep.id, cell(), Status.PUBLISH_FAILED, facts)
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.retryable is True

    @pytest.mark.parametrize("source", list(Status))
    def test_only_the_transitions_of_the_table(self, state: State, source: Status) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        facts = Facts(tree="b" * 64)
        for wanted in Status:
            put(state, sweep.id, source)
            if source in SOURCES[wanted]:
                state.record(lease, sweep.id, cell(), wanted, facts)
                assert status(state, sweep) is wanted
            else:
                with pytest.raises(BadTransition, match=f"{source} and cannot become {wanted}"):
                    state.record(lease, sweep.id, cell(), wanted, facts)
                assert status(state, sweep) is source

    def test_published_is_recorded_twice_only_with_equal_content(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        at = datetime(2026, 6, 9, tzinfo=UTC)
        state.record(lease, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE, published_at=at))
        state.record(lease, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.published_at == at.timestamp()
        with pytest.raises(BadTransition):
            state.record(lease, sweep.id, cell(), Status.PUBLISHED, Facts(tree="b" * 64))

    def test_a_late_token_is_refused_and_writes_nothing(self, state: State) -> None:
        sweep = begin(state)
        late = take(state, sweep, FOREIGN, ttl=0)
        state.record(late, sweep.id, cell(), Status.BUILDING)
        current = take(state, sweep)
        assert current.model == late.model
        assert current.token > late.token
        events = list(state.events(sweep.id))
        facts = Facts(tree=TREE)
        with pytest.raises(LeaseLost):
            state.record(late, sweep.id, cell(), Status.PUBLISHED, facts, [stage("export", "k")])
        assert status(state, sweep) is Status.PLANNED
        assert list(state.events(sweep.id)) == events
        assert state.stage_runs(sweep.id) == []
        state.record(current, sweep.id, cell(), Status.BUILDING)

    def test_a_released_lease_is_refused(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        state.release(lease, done=False)
        with pytest.raises(LeaseLost):
            state.record(lease, sweep.id, cell(), Status.BUILDING)

    def test_a_lease_is_good_for_its_model_only(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        with pytest.raises(StateError, match="is not a cell of"):
            state.record(lease, sweep.id, cell(1), Status.BUILDING)
        with pytest.raises(StateError, match="no cell"):
            state.record(lease, sweep.id, "nonsense", Status.BUILDING)
        with pytest.raises(StateError, match="without a lease"):
            state.record(None, sweep.id, cell(), Status.BUILDING)

    def test_a_new_attempt_counts_and_forgets(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        state.record(lease, sweep.id, cell(), Status.BUILDING)
        state.record(lease, sweep.id, cell(), Status.PLANNED, Facts(message="ignored"))
        state.record(lease, sweep.id, cell(), Status.BUILT, Facts(tree=TREE))
        state.record(lease, sweep.id, cell(), Status.BUILDING)
        found = state.outcome(sweep.id, cell())
        assert found is not None
        assert found.attempts == 3
        assert found.message is None

    def test_stages_come_with_the_status(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        runs = [stage("export", "k1", seconds=-1.0), stage("export", "k1", reused=True)]
        state.record(lease, sweep.id, cell(), Status.BUILT, stages=runs)
        add_stages(state, lease, stage("quantize", "k2", bytes=2**40, peak_memory=7))
        found = state.stage_runs(sweep.id)
        assert [(run.stage, run.key, run.reused) for run in found] == [
            ("export", "k1", False),
            ("export", "k1", True),
            ("quantize", "k2", False),
        ]
        assert found[0].seconds == 0, "a clock that was set back costs no record"
        assert found[2].bytes == 2**40
        assert not any(one.cell == cell(1) for one in state.stage_runs(sweep.id))

    def test_notes_about_the_sweep(self, state: State) -> None:
        sweep = begin(state)
        first = state.note(sweep.id, Kind.STARTED, {"slots": 2})
        second = state.note(sweep.id, Kind.INTERRUPTED)
        assert second > first
        assert [one.kind for one in state.events(sweep.id, first - 1)] == [
            Kind.STARTED,
            Kind.INTERRUPTED,
        ]
