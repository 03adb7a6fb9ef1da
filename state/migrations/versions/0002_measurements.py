"""Measurements, and which cells of a sweep are to be measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "bench",
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("cell", "model", "needs")),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("message", sa.Text()),
        sa.CheckConstraint(
            "state IN ('wanted', 'measured', 'failed')", name=op.f("ck_bench_state")
        ),
        sa.CheckConstraint(
            "state <> 'failed' OR message IS NOT NULL", name=op.f("ck_bench_failed")
        ),
        sa.ForeignKeyConstraint(
            ["sweep_id", "cell"],
            ["outcome.sweep_id", "outcome.cell"],
            name=op.f("fk_bench_outcome"),
        ),
        sa.PrimaryKeyConstraint("sweep_id", "cell", name=op.f("pk_bench")),
    )
    op.create_index("ix_bench_work", "bench", ["sweep_id", "model", "needs"])
    texts = ("kind", "tree", "cell", "stamp", "component", "runtime", "provider", "device")
    op.create_table(
        "measurement",
        sa.Column("id", BIG, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in texts),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("emulated", sa.Boolean(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("percentiles", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("detail", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("raw", sa.LargeBinary()),
        sa.CheckConstraint("kind IN ('benchmark', 'trace')", name=op.f("ck_measurement_kind")),
        sa.CheckConstraint("length(tree) = 64", name=op.f("ck_measurement_tree")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
    )
    op.create_index("ix_measurement_tree", "measurement", ["tree"])
