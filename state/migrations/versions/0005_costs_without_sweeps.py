"""Costs of stages outlive the sweep in which they ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from state.schema import metadata

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Let `stage_run` have rows without a sweep."""
    with op.batch_alter_table("stage_run", copy_from=metadata.tables["stage_run"]) as batch:
        batch.alter_column("sweep_id", existing_type=sa.BigInteger(), nullable=True)
