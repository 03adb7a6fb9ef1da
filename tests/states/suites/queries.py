from __future__ import annotations

import pytest

from matrix.status import FailureClass, Status
from state import queries
from state.records import Facts, Kind
from state.state import State
from tests.states.samples import (
    ALIVE,
    FOREIGN,
    TREE,
    add_stages,
    begin,
    cell,
    counts,
    model,
    rows,
    stage,
    take,
)


class TestQueries:
    def test_outcomes_page_by_page(self, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(queries, "_PAGE", 3)
        for models in (4, 6):  # ending on a page and inside of one
            sweep = begin(state, rows(models, targets=["a", "b", "c"]))
            cells = [one.cell for one in state.outcomes(sweep.id)]
            assert sorted(cells) == sorted(row.cell for row in rows(models, targets="abc"))

    def test_outcomes_can_be_written_while_they_are_read(self, state: State) -> None:
        sweep = begin(state)
        for one in state.outcomes(sweep.id):
            state.record(None, sweep.id, one.cell, Status.SKIPPED)
        assert counts(state, sweep.id) == {Status.SKIPPED: 4}

    def test_machines_are_those_that_renew_a_lease(self, state: State) -> None:
        sweep, other = begin(state, rows(2)), begin(state, rows(3), stamp="other")
        offers = frozenset({"engine:fake", "lab"})
        state.lease(sweep.id, ALIVE, 3600, offers=offers)
        state.lease(other.id, FOREIGN, 3600)
        lost = frozenset({"engine:lost"})
        assert state.lease(other.id, FOREIGN, 0, offers=lost) is not None
        assert state.machines() == {offers, frozenset()}

    def test_outcomes_by_what_they_are(self, state: State) -> None:
        sweep = begin(state)
        state.record(None, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
        facts = Facts(failure=FailureClass.DISK)
        state.record(None, sweep.id, cell(1), Status.BUILD_FAILED, facts)
        chosen = state.outcomes(sweep.id, statuses=[Status.PUBLISHED, Status.BUILD_FAILED])
        assert {one.cell for one in chosen} == {cell(), cell(1)}
        assert len(list(state.outcomes(sweep.id, model=model(1)))) == 2
        assert list(state.outcomes(sweep.id, statuses=[])) == []
        assert state.statuses(sweep.id)[cell()] is Status.PUBLISHED
        assert state.outcome(sweep.id, "nobody") is None

    def test_events_go_on_where_they_ended(
        self, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sweep = begin(state)
        other = begin(state, rows(1, stamp="b"), stamp="b")
        for number in range(5):
            state.note(sweep.id, Kind.NOTICE, {"n": number})
            state.note(other.id, Kind.NOTICE)
        monkeypatch.setattr("state.queries._PAGE", 2)
        events = state.events(sweep.id)
        read = [next(events), next(events)]
        state.note(sweep.id, Kind.NOTICE, {"n": 5})  # while they are read
        read += events
        assert list(state.events(sweep.id, read[2].id)) == read[3:]
        notes = [one.data["n"] for one in read if one.kind is Kind.NOTICE and one.data]
        assert notes == list(range(6))
        assert {one.sweep_id for one in read} == {sweep.id}

    def test_the_newest_event(self, state: State) -> None:
        assert state.last_event(1) == 0
        sweep = begin(state)
        begin(state, rows(1, stamp="b"), stamp="b")
        newest = state.note(sweep.id, Kind.NOTICE)
        assert state.last_event(sweep.id) == newest
        assert list(state.events(sweep.id, newest)) == []
        found = state.newest_event(sweep.id, Kind.NOTICE)
        assert found is not None
        assert found.id == newest
        assert state.newest_event(sweep.id, Kind.ENDED) is None

    def test_what_keys_were_made_of_and_took_when_they_really_ran(self, state: State) -> None:
        first = begin(state)
        lease = take(state, first)
        add_stages(state, lease, stage("export", "k", seconds=9.0))
        add_stages(state, lease, stage("export", "other", seconds=1.0))
        state.release(lease, done=True)
        second = begin(state, rows(1, stamp="b"), stamp="b")
        again = take(state, second)
        add_stages(state, again, stage("export", "k", seconds=0.1, reused=True))
        assert state.key_parts(second.id) == {"k": {"is": "k"}}
        assert state.real_seconds(second.id) == {"k": 9.0}
        assert set(state.key_parts(first.id)) == {"k", "other"}

    def test_what_the_stages_of_a_cell_cost_before(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        add_stages(state, lease, stage("export", "k", seconds=100.0, bytes=8, peak_memory=9))
        add_stages(state, lease, stage("export", "k", seconds=3.0, bytes=8, peak_memory=9))
        add_stages(state, lease, stage("export", "k", reused=True))
        add_stages(state, lease, stage("export", "other", seconds=7.0, component="decoder"))
        decoder, whole = sorted(state.unit_costs(), key=lambda one: -len(one.component))
        assert (whole.cell, whole.stage, whole.key) == (cell(), "export", "k")
        assert (whole.seconds, whole.bytes, whole.peak_memory) == (3.0, 8, 9)
        assert (decoder.component, decoder.seconds) == ("decoder", 7.0)

    def test_what_the_keys_of_a_sweep_were_made_from(self, state: State) -> None:
        sweep = begin(state)
        lease = take(state, sweep)
        for key in ("old", "new", "new"):
            add_stages(state, lease, stage("quantize", key))
        add_stages(state, lease, stage("quantize", "else", target="mlas_cpu"))
        assert state.key_parts(sweep.id) == {key: {"is": key} for key in ("old", "new", "else")}
        assert state.key_parts(begin(state, stamp="b").id) == {}
