from __future__ import annotations

from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from state.migrate import _config
from state.schema import Base
from state.state import State
from state.version import HEAD


def test_constraints_of_the_models_are_in_the_migrations(state: State) -> None:
    """Alembic does not compare CHECK constraints; their text is compared here."""
    fresh = create_engine("sqlite://")
    Base.metadata.create_all(fresh)
    with state._db.read() as migrated, fresh.connect() as made:
        for table in Base.metadata.tables:
            assert _checks(inspect(migrated), table) == _checks(inspect(made), table), table
    fresh.dispose()


def _checks(found: object, table: str) -> dict[str, str]:
    checks = found.get_check_constraints(table)  # type: ignore[attr-defined]  # an Inspector
    return {check["name"]: check["sqltext"] for check in checks}


def test_the_newest_migration_is_the_one_the_code_expects() -> None:
    assert ScriptDirectory.from_config(_config()).get_heads() == [HEAD]
