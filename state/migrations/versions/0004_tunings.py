"""Tunings, their trials, and the sessions that were measured of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.create_table(
        "tuning",
        sa.Column("id", BIG, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("name", "model", "target")),
        sa.Column("position", BIG, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("message", sa.Text()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("began_at", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("detail", JSON, nullable=False),
        sa.CheckConstraint(
            "status IN ('planned', 'running', 'done', 'out of time', 'failed')",
            name=op.f("ck_tuning_status"),
        ),
        sa.CheckConstraint(
            "(status IN ('done', 'out of time', 'failed')) = (ended_at IS NOT NULL)",
            name=op.f("ck_tuning_ended"),
        ),
        sa.CheckConstraint(
            "status <> 'failed' OR message IS NOT NULL", name=op.f("ck_tuning_failed")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuning")),
        sa.UniqueConstraint("name", "model", "target", name=op.f("uq_tuning")),
    )
    _trial()
    _session()


def _trial() -> None:
    op.create_table(
        "trial",
        sa.Column("tuning_id", BIG, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("position", BIG, nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text()),
        sa.Column("tree", sa.Text()),
        sa.Column("detail", JSON, nullable=False),
        sa.CheckConstraint(
            "phase IN ('baseline', 'single', 'combination')", name=op.f("ck_trial_phase")
        ),
        sa.CheckConstraint(
            "verdict IN ('better', 'no difference', 'worse', 'too noisy', 'inaccurate', "
            "'build failed', 'crashed', 'timed out', 'same', 'skipped')",
            name=op.f("ck_trial_verdict"),
        ),
        sa.CheckConstraint(
            "NOT (verdict IN ('better', 'no difference', 'worse', 'too noisy', 'inaccurate', "
            "'same')) OR tree IS NOT NULL",
            name=op.f("ck_trial_built"),
        ),
        sa.CheckConstraint("length(tree) = 64", name=op.f("ck_trial_tree")),
        sa.ForeignKeyConstraint(["tuning_id"], ["tuning.id"], name=op.f("fk_trial_tuning")),
        sa.PrimaryKeyConstraint("tuning_id", "key", name=op.f("pk_trial")),
    )


def _session() -> None:
    op.create_table(
        "trial_session",
        sa.Column("tuning_id", BIG, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("trial", "kind", "component")),
        sa.Column("number", BIG, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("detail", JSON, nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('screen', 'comparison', 'confirmation')", name=op.f("ck_trial_session_kind")
        ),
        sa.CheckConstraint("number >= 1", name=op.f("ck_trial_session_number")),
        sa.ForeignKeyConstraint(
            ["tuning_id", "trial"],
            ["trial.tuning_id", "trial.key"],
            name=op.f("fk_trial_session_trial"),
        ),
        sa.PrimaryKeyConstraint(
            "tuning_id", "trial", "kind", "component", "number", name=op.f("pk_trial_session")
        ),
    )
