"""What the numbers of a sweep add up to: totals, what reuse saved, the slowest and the largest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from flows.observe.report.document import CellView, Ranked, Row, Totals
from flows.observe.summary import Summary
from matrix.status import Status

MOST_RANKED = 12


def totals(cells: Sequence[CellView], models: int, summary: Summary) -> Totals:
    """Add up; exports are counted where work and bytes are, not among the cells."""
    stages = [stage for cell in cells for stage in cell.stages]
    reused = [stage for stage in stages if stage.reused]
    return Totals(
        cells=sum(summary.counts.values()),
        models=models,
        counts=summary.counts,
        failed=len(summary.failures),
        failed_exports=summary.failed_exports,
        open=summary.open,
        bytes=sum(cell.bytes or 0 for cell in cells if cell.status == Status.PUBLISHED),
        stage_runs=len(stages),
        stages_reused=len(reused),
        seconds_run=round(sum(stage.seconds for stage in stages if not stage.reused), 3),
        seconds_saved=round(sum(stage.saved for stage in reused), 3),
        bytes_saved=sum(stage.bytes for stage in reused),
    )


def slowest(cells: Sequence[CellView], rows: Sequence[Row]) -> list[Ranked]:
    """Models by the time in which their stages really ran."""
    seconds: defaultdict[int, float] = defaultdict(float)
    worst: dict[int, tuple[float, str]] = {}
    for cell in cells:
        took = sum(stage.seconds for stage in cell.stages if not stage.reused)
        seconds[cell.row] += took
        worst[cell.row] = max(worst.get(cell.row, (0.0, "")), (took, cell.id))
    return [
        Ranked(rows[row].name, round(took, 3), worst[row][1])
        for row, took in sorted(seconds.items(), key=lambda item: -item[1])[:MOST_RANKED]
        if took > 0
    ]


def largest(cells: Sequence[CellView]) -> list[Ranked]:
    """Packages by their bytes."""
    known = sorted((cell for cell in cells if cell.bytes), key=lambda cell: -(cell.bytes or 0))
    return [Ranked(cell.id, float(cell.bytes or 0), cell.id) for cell in known[:MOST_RANKED]]
