"""The memory budget: a stage starts when what it is expected to take is free, in turn.

An estimate is no ceiling (that is the host's): a stage that is expected to need more than there is
runs alone. A stage that runs disturbs measurements, so it also waits until none is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from machine import memory
from machine.disk import size_text
from machine.ledger import Ledger
from machine.reservations import DISTURBS, Want, reserved
from machine.waits import WITHOUT_LIMIT, WaitRules
from workers.errors import wait_failures

SHARE = 0.9
"""Of the machine's memory; the rest is for the system and for our own processes."""
RESOURCE = "memory"


class MemoryBudget:
    """How much the stages that run at once on this machine may take."""

    def __init__(self, limit: int = 0, *, ledger: Ledger | None = None) -> None:
        self.limit = limit or int(memory.total() * SHARE)
        self._ledger = ledger or Ledger()

    @property
    def reserved(self) -> int:
        """Bytes that running stages are expected to take."""
        with self._ledger.everybody() as entries:
            return reserved(RESOURCE, entries)

    @contextmanager
    def reserve(
        self,
        size: int,
        rules: WaitRules = WITHOUT_LIMIT,
        *,
        what: str = "",
    ) -> Iterator[None]:
        """Wait for `size` bytes, and hold them for as long as a stage runs.

        Raises `Cancelled`, or `BuildFailed` when none of those who hold memory has begun or ended
        anything for too long.
        """
        words = f"{size_text(size)} of memory"
        wants = [Want(RESOURCE, size, self.limit, words, alone=True), DISTURBS]
        with wait_failures("reserve"):
            reservation = self._ledger.reserve(wants, what, rules)
        with reservation:
            yield
