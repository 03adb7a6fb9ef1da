"""Comparisons are measurements too."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    name = op.f("ck_measurement_kind")
    # SQLite cannot change a constraint: there, the table is copied into a new one.
    with op.batch_alter_table("measurement") as table:
        table.drop_constraint(name, type_="check")
        table.create_check_constraint(name, "kind IN ('benchmark', 'trace', 'comparison')")
