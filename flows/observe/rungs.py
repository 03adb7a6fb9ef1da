"""Reading the rungs of verification that were recorded for a cell."""

from __future__ import annotations

from typing import Any

from state import damage
from state.records import Outcome


def rungs_of(one: Outcome) -> list[dict[str, Any]]:
    """What verification found, as it was recorded."""
    rungs = (one.evidence or {}).get("rungs", [])
    found = [rung for rung in rungs if isinstance(rung, dict)] if isinstance(rungs, list) else []
    if not isinstance(rungs, list) or len(found) < len(rungs):
        damage.note(f"evidence of {one.cell}: rungs")
    return found
