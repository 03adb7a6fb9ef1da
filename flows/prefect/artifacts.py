"""What Prefect's artifacts say of a sweep: a bar while it goes on, a table when it is over."""

from __future__ import annotations

import json
from collections.abc import Iterable

from flows.observe.tally import Tally
from state.records import Outcome

MOST_ROWS = 2000


def percent_done(tally: Tally) -> float:
    """How much of the sweep is through."""
    return 100.0 * tally.ended / tally.total if tally.total else 100.0


def progress_text(tally: Tally) -> str:
    """The line beside the bar."""
    counts = f"{tally.ended} of {tally.total} cells, {tally.failed} failed"
    return "; ".join(filter(None, (counts, *tally.outlook(), tally.told)))


def outcome_rows(outcomes: Iterable[Outcome]) -> list[dict[str, str]]:
    """The table; failures come first and say why."""
    ranked = sorted(outcomes, key=lambda one: (not one.status.failed, one.cell))
    return [
        {
            "cell": one.cell,
            "status": str(one.status),
            "version": one.version,
            "class": str(one.failure or ""),
            "message": (one.message or "")[:200],
        }
        for one in ranked
    ]


def outcome_table(stamp: str, outcomes: Iterable[Outcome]) -> tuple[str, str]:
    """The table as an artifact holds it, and its description."""
    rows = outcome_rows(outcomes)
    return json.dumps(rows[:MOST_ROWS]), f"{len(rows)} cells and exports of sweep {stamp}"
