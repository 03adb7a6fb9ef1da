"""Databases of older schemas are brought along with what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from matrix.status import Status
from state.ledger import State, open_state
from state.migrate import _config
from state.records import Facts, Remaining
from tests.states.samples import ALIVE, TREE, begin, cell, model, rows, sql, status, take

TABLES = ("stage_run", "stage_key", "lease", "work", "event", "outcome", "sweep")
OLD_ROWS = f"""
INSERT INTO sweep (id, stamp, feed, publish, settings, selection, created_at, begun_at)
    VALUES (1, '20260609', 'feed', TRUE, '{{}}', '{{}}', 1, 1);
INSERT INTO work (sweep_id, model, state, position, estimate, attempts, lost)
    VALUES (1, '{model(0)}', 'leased', 0, 1.5, 2, 1), (1, '{model(1)}', 'todo', 1, 0, 0, 0);
INSERT INTO event (at, sweep_id, kind, model) VALUES (1, 1, 'leased', '{model(0)}');
INSERT INTO lease (model, sweep_id, token, owner, host, pid, pid_started, taken_at, renewed_at,
    expires_at, ttl) VALUES ('{model(0)}', 1, 1, 'slot-9', 'elsewhere', 1, '1', 1, 1, 4e9, 60);
INSERT INTO outcome (sweep_id, cell, model, target, precision, package, version, status, attempts,
    token, started_at) VALUES (1, '{cell()}', '{model(0)}', 'qnn_npu', 'fp32',
    'modelmill-org-model-0', '0.0.0-20260609-qnn-npu-org-model-0', 'building', 1, 1, 1);
INSERT INTO outcome (sweep_id, cell, model, target, precision, package, version, status, attempts)
    VALUES (1, '{cell(1)}', '{model(1)}', 'qnn_npu', 'fp32',
    'modelmill-org-model-1', '0.0.0-20260609-qnn-npu-org-model-1', 'planned', 0)
"""


@pytest.fixture
def where(state: State, tmp_path: Path) -> str:
    """The database of `state`, to be opened again."""
    return str(tmp_path / "state.db")


def make_old(state: State) -> None:
    """Start over with the first schema alone, and a sweep in it."""
    for table in (*TABLES, "modelmill_schema"):
        sql(state, f"DROP TABLE {table}")
    with state._db.write() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in OLD_ROWS.split(";"):
            connection.execute(text(statement))


class TestMigrations:
    def test_a_sweep_of_the_first_schema_goes_on(self, state: State, where: str) -> None:
        make_old(state)
        with open_state(where) as opened:
            (holder,) = opened.leases(1)
            assert (holder.owner, holder.token, holder.needs) == ("slot-9", 1, ())
            assert opened.remaining(1) == Remaining(todo=1, leased=1)
            lease = take(opened, opened.sweep(1))
            assert (lease.model, lease.needs, lease.attempt) == (model(1), (), 1)
            assert lease.token > holder.token
            opened.record(lease, 1, cell(1), Status.PUBLISHED, Facts(tree=TREE))
            opened.release(lease, done=True)
            sql(opened, "UPDATE lease SET expires_at = renewed_at")
            info = begin(opened, rows(2))
            assert (info.id, info.created) == (1, False)
            assert status(opened, info) is Status.PLANNED
            assert status(opened, info, cell(1)) is Status.PUBLISHED
            again = opened.lease(1, ALIVE, 60.0, offers=frozenset())
            assert again is not None
            assert again.attempt == 3
