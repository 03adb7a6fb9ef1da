"""Alembic's entry: runs on the connection, and in the transaction, that `state.state` opened."""

from __future__ import annotations

from alembic import context

from state.reading import VERSION_TABLE
from state.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
