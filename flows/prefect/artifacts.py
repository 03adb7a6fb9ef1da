"""What Prefect's artifacts show of a sweep: progress while it runs, then a table of outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flows.observe.progress import SweepProgress
from state.records import Outcome

MOST_ROWS = 2000


def artifact_key(stamp: str, kind: str) -> str:
    """The key of an artifact; Prefect allows lower case, digits and dashes only."""
    slug = re.sub(r"[^0-9a-z]+", "-", stamp.lower()).strip("-")
    return f"modelmill-{slug}-{kind}"


def percent_done(progress: SweepProgress) -> float:
    """How much of the sweep has ended."""
    return 100.0 * progress.ended / progress.total if progress.total else 100.0


def progress_text(progress: SweepProgress) -> str:
    """The text beside the progress bar."""
    counts = f"{progress.ended} of {progress.total} cells, {progress.failed} failed"
    return "; ".join(filter(None, (counts, *progress.left_lines(), progress.remarks)))


def outcome_table(stamp: str, outcomes: Iterable[Outcome]) -> tuple[list[dict[str, str]], str]:
    """The table, failures and their messages first, and its description."""
    ranked = sorted(outcomes, key=lambda one: (not one.status.failed, one.cell))
    rows = [
        {
            "cell": one.cell,
            "status": str(one.status),
            "version": one.version,
            "class": str(one.failure or ""),
            "message": (one.message or "")[:200],
        }
        for one in ranked
    ]
    return rows[:MOST_ROWS], f"{len(rows)} cells and exports of sweep {stamp}"
