"""How much of a sweep passed, by target and priority, and how far verification went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flows.observe.report.document import CellView, Rate, Row
from flows.sweep.exports import is_export
from matrix.status import Status
from matrix.verification import RUNGS

_PASSED = {Status.PUBLISHED, Status.UNCHANGED, Status.VERIFIED}


def level_of(rungs: Iterable[Mapping[str, Any]]) -> str | None:
    """The highest rung that holds with all below it; None: nothing was verified here."""
    known = {str(rung.get("name")): rung for rung in rungs}
    level = None
    for name in RUNGS:
        rung = known.get(name, {})
        if rung.get("passed") is not True and not rung.get("waived"):
            break
        level = name
    return level


def pass_rates(cells: Sequence[CellView], rows: Sequence[Row]) -> list[Rate]:
    """Of every priority and column, and of each of them altogether; exports are not counted."""
    groups: defaultdict[tuple[str | None, int | None], list[CellView]] = defaultdict(list)
    for cell in cells:
        if is_export(cell.id) or not _ended(Status(cell.status)):
            continue
        for key in _keys(rows[cell.row].priority, cell.column):
            groups[key].append(cell)
    return [_rate(priority, column, group) for (priority, column), group in groups.items()]


def _keys(priority: str, column: int) -> Iterator[tuple[str | None, int | None]]:
    """The groups that a cell belongs to; None stands for all."""
    yield None, None
    yield None, column
    if priority:
        yield priority, None
        yield priority, column


def _ended(status: Status) -> bool:
    """What was left out on purpose or is still open neither passed nor failed."""
    return status in _PASSED or status.failed


def _rate(priority: str | None, column: int | None, cells: Sequence[CellView]) -> Rate:
    passed = [cell for cell in cells if cell.status in _PASSED]
    levels = [cell.level for cell in passed if cell.level]
    return Rate(
        priority=priority,
        column=column,
        passed=len(passed),
        ended=len(cells),
        level=min(levels, key=RUNGS.index, default=None),
    )
