from __future__ import annotations

from pathlib import Path

import pytest

from matrix.status import FailureClass, Status
from state.errors import OlderSchema, StateError, StateUnavailable, of_sqlite
from state.reading import read_state
from state.records import Facts, Outcome
from state.rows import records
from state.state import State
from tests.states.samples import add_stages, begin, cell, rows, stage, take


def test_lists_may_be_longer_than_a_statement_takes_parameters(
    state: State, tmp_path: Path
) -> None:
    sweep = begin(state, rows(3))
    among = [f"no/such-{number}" for number in range(40_000)]
    with read_state(tmp_path / "state.db") as reader:
        assert not reader.demand(sweep.id, among)
        assert reader.demand(sweep.id, [*among, *state.models(sweep.id)])
    assert state.retry(sweep.id, among=among) == []


def test_a_reader_and_a_writer_tell_the_same(state: State, tmp_path: Path) -> None:
    sweep = begin(state, rows(3))
    lease = take(state, sweep)
    facts = Facts(failure=FailureClass.DISK, seconds=2, evidence={"rungs": []}, retryable=True)
    add_stages(state, lease, stage("export", "k", seconds=4.0))
    state.record(lease, sweep.id, cell(), Status.BUILD_FAILED, facts)
    with read_state(tmp_path / "state.db") as reader:
        assert reader.label == state.label
        assert reader.sweeps() == state.sweeps()
        assert list(reader.outcomes(sweep.id)) == list(state.outcomes(sweep.id))
        assert list(reader.events(sweep.id)) == list(state.events(sweep.id))
        assert reader.leases() == state.leases()
        assert reader.demand(sweep.id) == state.demand(sweep.id)
        assert reader.stage_runs(sweep.id) == state.stage_runs(sweep.id)
        assert reader.unit_costs() == state.unit_costs()
        assert abs(reader.now() - state.now()) < 60
        failed = reader.outcome(sweep.id, cell())
    assert failed is not None
    assert failed.retryable is True, "a truth value, not a number"


def test_a_reader_cannot_write(state: State, tmp_path: Path) -> None:
    begin(state)
    with read_state(tmp_path / "state.db") as reader, pytest.raises(StateError, match="readonly"):
        reader._rows.fetch("DELETE FROM event")


def test_an_older_or_empty_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    with pytest.raises(OlderSchema, match="empty"):
        read_state(path)
    assert path.stat().st_size == 0
    with pytest.raises(StateError, match="no state at"):
        read_state(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == [path]


def test_a_locked_file_may_be_free_later() -> None:
    assert isinstance(of_sqlite("state.db", "database is locked"), StateUnavailable)
    assert not isinstance(of_sqlite("state.db", "disk I/O error"), StateUnavailable)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("attempts", "noon"),
        ("seconds", "noon"),
        ("evidence", "[1]"),
        ("detail", "{"),
        ("status", "glorious"),
    ],
)
def test_what_a_record_cannot_hold_is_an_error_that_names_it(
    state: State, column: str, value: str
) -> None:
    sweep = begin(state, rows(1))
    (row, other) = state._rows.fetch("SELECT * FROM outcome WHERE sweep_id = :id", id=sweep.id)
    found = records(Outcome, "outcome", "cell", [other, {**row, column: value}])
    assert next(found).cell == other["cell"]
    with pytest.raises(StateError, match=f"damaged record: outcome.*{row['cell']}") as caught:
        next(found)
    assert column in str(caught.value)
    assert "backup" in (caught.value.hint or "")
