"""Alembic migrations, shipped with the package and run when a database is opened."""
