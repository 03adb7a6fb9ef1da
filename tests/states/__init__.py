"""State databases with something in them."""

from __future__ import annotations

from pathlib import Path

FIRST_SCHEMA = Path(__file__).with_name("schema_0004.sql")
"""What SQLite makes of the schema that the first migration stands for."""
