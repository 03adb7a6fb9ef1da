from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from state.reading import HEAD, MIGRATIONS, VERSION_TABLE
from state.schema import metadata
from state.state import State, open_state
from tests.states import FIRST_SCHEMA
from tests.states.samples import begin


def test_migrations_of_the_first_schema_make_what_a_new_state_has(
    state: State, tmp_path: Path
) -> None:
    path = tmp_path / "first.db"
    with closing(sqlite3.connect(path)) as first:
        first.executescript(FIRST_SCHEMA.read_text("utf-8"))
    with open_state(path) as opened:
        options = {"target_metadata": metadata, "version_table": VERSION_TABLE}
        with opened.database.read() as migrated, state.database.read() as made:
            context = MigrationContext.configure(migrated, opts=options)
            assert compare_metadata(context, metadata) == []
            for table in metadata.tables:  # Alembic does not compare CHECK constraints
                assert _checks(inspect(migrated), table) == _checks(inspect(made), table), table
        assert begin(opened).created


def _checks(found: object, table: str) -> dict[str, str]:
    checks = found.get_check_constraints(table)  # type: ignore[attr-defined]  # an Inspector
    return {check["name"]: check["sqltext"] for check in checks}


def test_the_newest_migration_is_the_one_the_code_expects() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]
