"""The tables of what the exporter and Transformers have, against those that are installed."""

from __future__ import annotations

import json

from matrix.abilities import DATA
from matrix.coverage import HEADS
from workers.optimum_engine.abilities import heads, table


def test_the_tables_say_what_the_installed_libraries_say() -> None:
    """Where they do not: `python -m workers.optimum_engine.abilities` writes them anew."""
    assert json.loads((DATA / "optimum.json").read_text(encoding="ascii")) == table()
    assert json.loads(HEADS.read_text(encoding="ascii")) == heads()
