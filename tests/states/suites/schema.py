from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import IntegrityError

from state.reading import VERSION_TABLE
from state.schema import metadata
from state.state import State
from tests.states.samples import begin, cell, sql, take


class TestSchema:
    def test_the_database_has_what_the_schema_says(self, state: State) -> None:
        with state.database.read() as connection:
            options = {"target_metadata": metadata, "version_table": VERSION_TABLE}
            context = MigrationContext.configure(connection, opts=options)
            assert compare_metadata(context, metadata) == []

    @pytest.mark.parametrize(
        "values",
        [
            "status = 'glorious'",
            "status = 'published'",
            "status = 'published', ended_at = 1, published_at = 1",
            f"status = 'published', ended_at = 1, tree = '{'a' * 64}'",
            f"status = 'published', published_at = 1, tree = '{'a' * 64}'",
            "status = 'unchanged', ended_at = 1",
            "status = 'build_failed', ended_at = 1",
            "status = 'build_failed', ended_at = 1, failure = 'CRASH'",
            "status = 'build_failed', failure = 'CRASH', retryable = FALSE",
            "status = 'build_failed', ended_at = 1, failure = 'BAD LUCK', retryable = FALSE",
            "failure = 'CRASH', retryable = FALSE",
            "status = 'building'",
            "status = 'building', token = 1",
            "status = 'publishing', started_at = 1",
            "status = 'cancelled'",
            "status = 'skipped', ended_at = 1",
            "ended_at = 1",
            "tree = 'short'",
            "attempts = -1",
            "sweep_id = 99",
        ],
    )
    def test_constraints_refuse_impossible_outcomes(self, state: State, values: str) -> None:
        begin(state)
        with pytest.raises(IntegrityError):
            sql(state, f"UPDATE outcome SET {values} WHERE cell = :cell", cell=cell())

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE work SET state = 'lost'",
            "UPDATE work SET state = 'poison'",
            "UPDATE work SET attempts = -1",
            "UPDATE lease SET expires_at = renewed_at - 1",
            "UPDATE lease SET sweep_id = 99",
            "UPDATE event SET kind = 'rumour'",
            "UPDATE event SET status = 'glorious'",
            "UPDATE sweep SET ended_at = 1",
            "UPDATE sweep SET exit_code = 1",
            "DELETE FROM sweep",
            "DELETE FROM work",
        ],
    )
    def test_constraints_refuse_impossible_rows_elsewhere(
        self, state: State, statement: str
    ) -> None:
        take(state, begin(state))
        with pytest.raises(IntegrityError):
            sql(state, statement)
