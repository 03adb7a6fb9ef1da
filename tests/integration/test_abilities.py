"""The table of what the exporter can export, against the exporter that is installed."""

from __future__ import annotations

import json

from matrix.abilities import DATA
from workers.optimum_engine.abilities import table


def test_the_table_says_what_the_installed_exporter_says() -> None:
    """Where it does not: `python -m workers.optimum_engine.abilities` writes it anew."""
    assert json.loads((DATA / "optimum.json").read_text(encoding="ascii")) == table()
