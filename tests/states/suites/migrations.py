"""Databases of older schemas are brought along with what they hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import text

from matrix.status import Status
from state import reading
from state.reading import HEAD
from state.records import Facts, Remaining
from state.state import State, open_state
from tests.states.samples import ALIVE, TREE, begin, cell, rows, status, take

NEXT = f"""
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{HEAD}"


def upgrade():
    op.add_column("outcome", sa.Column("weather", sa.String(), server_default="fair"))
"""


def add_a_migration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this is a modelmill whose schema has one more migration."""
    shutil.copytree(reading.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9999_weather.py").write_text(NEXT, encoding="utf-8")
    monkeypatch.setattr(reading, "MIGRATIONS", folder)
    monkeypatch.setattr(reading, "HEAD", "9999")


class TestMigrations:
    def test_a_sweep_of_an_older_schema_goes_on(
        self, state: State, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = begin(state, rows(2))
        held = take(state, info)
        state.record(held, info.id, cell(), Status.BUILDING)
        add_a_migration(tmp_path / "migrations", monkeypatch)
        with open_state(where) as opened:
            with opened.database.read() as connection:
                found = connection.scalars(text("SELECT weather FROM outcome")).all()
            assert found == ["fair"] * len(rows(2))
            (holder,) = opened.leases(info.id)
            assert (holder.owner, holder.token) == (held.owner, held.token)
            assert opened.remaining(info.id) == Remaining(todo=1, leased=1)
            opened.record(held, info.id, cell(), Status.PUBLISHED, Facts(tree=TREE))
            assert opened.release(held, done=False)
            again = begin(opened, rows(2))
            assert (again.id, again.created) == (info.id, False)
            assert status(opened, info) is Status.PUBLISHED
            lease = opened.lease(info.id, ALIVE, 60.0)
            assert lease is not None
            assert (lease.model, lease.attempt) == (held.model, 2)
            assert lease.token > held.token
