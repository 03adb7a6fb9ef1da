"""Processes that do not exist."""

from __future__ import annotations

from machine.processes import claim

NO_SUCH_PID = 2**22 + 1
"""Above the largest process id that Linux hands out."""


def dead_name() -> str:
    """A claimed name whose process has ended."""
    scope, _, _, random = claim().split("-")
    return f"{scope}-{NO_SUCH_PID}-1-{random}"
