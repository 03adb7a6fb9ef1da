"""The size and the notices of a plan, printed before a command begins."""

from __future__ import annotations

from collections.abc import Sequence

from flows.cli.quantity import counted
from matrix.model import Plan

MOST_NOTICES = 20


def size_of(plan: Plan) -> str:
    """`56 cells of 7 models`."""
    cells = sum(len(model.cells) for model in plan.models)
    return f"{counted(cells, 'cell')} of {counted(len(plan.models), 'model')}"


def print_notices(notices: Sequence[str]) -> None:
    """Print the notices of a plan, up to a limit."""
    for notice in notices[:MOST_NOTICES]:
        print(f"note: {notice}")
    if len(notices) > MOST_NOTICES:
        more = len(notices) - MOST_NOTICES
        print(f"note: ... and {more} more: modelmill plan CATALOG --json has all")
