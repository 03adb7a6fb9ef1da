"""A lease says what its holder is doing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("lease", sa.Column("cell", sa.String(), nullable=True))
    op.add_column("lease", sa.Column("activity", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("lease", "activity")
    op.drop_column("lease", "cell")
