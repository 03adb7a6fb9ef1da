"""Plans leave the events: each is kept once for its sweep. The cells of a model are found in their
order: without `cell` in the index, SQLite reads the whole sweep for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from matrix.digest import value_digest
from state.damage import parsed
from state.schema import metadata
from state.text import packed, to_json

revision = "0006"
down_revision = "0005"

_WITH_PLANS = sa.text("""
    SELECT id FROM event
    WHERE kind IN ('notice', 'started') AND CAST(data AS TEXT) LIKE '%"plan"%' ORDER BY id
""")
_EVENT = sa.text("SELECT sweep_id, data FROM event WHERE id = :id")
_SET_DATA = sa.text("UPDATE event SET data = :data WHERE id = :id")
_KEEP = sa.text("""
    INSERT INTO plan (sweep_id, digest, run, plan) VALUES (:sweep_id, :digest, :run, :plan)
    ON CONFLICT (sweep_id, digest) DO UPDATE SET run = excluded.run
""")


def upgrade() -> None:
    """Move the plans from the notices, and from the runs of a fleet."""
    table = sa.Table(
        "plan",
        sa.MetaData(naming_convention=metadata.naming_convention),
        sa.Column("sweep_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("plan", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("sweep_id", "digest"),
        sa.CheckConstraint("length(digest) = 64", name="digest"),
    )
    sa.Table("sweep", table.metadata, sa.Column("id", sa.BigInteger, primary_key=True))
    table.append_constraint(sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"]))
    connection = op.get_bind()
    table.create(connection)
    op.drop_index("ix_outcome_model", "outcome")
    op.create_index("ix_outcome_model", "outcome", ["sweep_id", "model", "cell"])
    for number in connection.scalars(_WITH_PLANS).all():
        sweep_id, data = connection.execute(_EVENT, {"id": number}).one()
        data = parsed(data)
        if not isinstance(data, dict):
            continue  # damaged: whoever reads the event says so
        for holder in _holders(data):
            plan = holder.pop("plan")
            data["plan"] = digest = value_digest(plan)
            row = {"sweep_id": sweep_id, "digest": digest, "run": number, "plan": packed(plan)}
            connection.execute(_KEEP, row)
        connection.execute(_SET_DATA, {"id": number, "data": to_json(data)})


def _holders(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Where an event holds a plan: a notice itself, a run of a fleet in its order."""
    for holder in (data, data.get("fleet")):
        if isinstance(holder, dict) and isinstance(holder.get("plan"), dict):
            yield holder
