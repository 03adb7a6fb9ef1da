"""Cells name what they need of a machine, and are leased by that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)
WORK = "sweep_id, model, state, position, estimate, attempts, lost, evidence"
LEASE = (
    "sweep_id, model, token, owner, host, pid, pid_started, taken_at, renewed_at, expires_at, ttl, "
    "cell, activity"
)


def upgrade() -> None:
    op.add_column("outcome", _needs())
    # SQLite cannot change a primary key: both tables are made anew, in one transaction.
    op.execute("CREATE TEMPORARY TABLE old_work AS SELECT * FROM work")
    op.execute("CREATE TEMPORARY TABLE old_lease AS SELECT * FROM lease")
    op.drop_table("lease")
    op.drop_table("work")
    _work()
    _lease()
    op.execute(f"INSERT INTO work ({WORK}) SELECT {WORK} FROM old_work")  # noqa: S608 - constants
    op.execute(f"INSERT INTO lease ({LEASE}) SELECT {LEASE} FROM old_lease")  # noqa: S608 - constants
    op.execute("DROP TABLE old_work")
    op.execute("DROP TABLE old_lease")


def downgrade() -> None:
    raise NotImplementedError("a lease of some cells of a model cannot be told to an older schema")


def _needs() -> sa.Column[str]:
    return sa.Column("needs", sa.String(), nullable=False, server_default="[]")


def _work() -> None:
    op.create_table(
        "work",
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        _needs(),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("estimate", sa.Float(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lost", sa.Integer(), nullable=False),
        sa.Column("evidence", JSON, nullable=True),
        sa.CheckConstraint(
            "state <> 'poison' OR evidence IS NOT NULL", name=op.f("ck_work_poison")
        ),
        sa.CheckConstraint(
            "state IN ('todo', 'leased', 'done', 'poison')", name=op.f("ck_work_state")
        ),
        sa.CheckConstraint("attempts >= 0 AND lost >= 0", name=op.f("ck_work_counts")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name=op.f("fk_work_sweep")),
        sa.PrimaryKeyConstraint("sweep_id", "model", "needs", name=op.f("pk_work")),
    )
    op.create_index(
        "ix_work_open",
        "work",
        ["sweep_id", "position"],
        unique=False,
        sqlite_where=sa.text("state IN ('todo', 'leased')"),
        postgresql_where=sa.text("state IN ('todo', 'leased')"),
    )


def _lease() -> None:
    op.create_table(
        "lease",
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        _needs(),
        sa.Column("token", BIG, nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("pid_started", sa.String(), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.Column("renewed_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("ttl", sa.Float(), nullable=False),
        sa.Column("cell", sa.String(), nullable=True),
        sa.Column("activity", sa.Text(), nullable=True),
        sa.CheckConstraint("expires_at >= renewed_at AND ttl >= 0", name=op.f("ck_lease_times")),
        sa.ForeignKeyConstraint(
            ["sweep_id", "model", "needs"],
            ["work.sweep_id", "work.model", "work.needs"],
            name=op.f("fk_lease_work"),
        ),
        sa.PrimaryKeyConstraint("sweep_id", "model", "needs", name=op.f("pk_lease")),
    )
