"""The first schema: `state.schema` makes it, and migrations bring it up to date from here on."""

from __future__ import annotations

revision = "0004"
down_revision = None


def upgrade() -> None:
    """Nothing to do: a database that has a schema has this one at least."""
