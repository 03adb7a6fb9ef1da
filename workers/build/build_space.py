"""The disk space of one build, reserved stage by stage.

A stage that finds too little space does not wait: its build would keep its inputs in the store,
where nothing in use can be evicted. It raises `NoSpaceNow`, the build gives its inputs up, waits
for space for all of it, and begins again; the store has the outputs of its finished stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from machine.waits import WaitRules
from workers.build.disk_budget import DiskBudget


class NoSpaceNow(Exception):
    """A stage needs more bytes than are free now."""

    def __init__(self, size: int, whole: int) -> None:
        super().__init__(f"no room for {size} bytes at once")
        self.size = size
        self.whole = whole


class BuildSpace:
    """The space that a build may fill; all of the disk without a budget."""

    def __init__(self, budget: DiskBudget | None, rules: WaitRules) -> None:
        self._budget = budget
        self._rules = rules
        self._waited = ExitStack()
        self._given = 0

    @contextmanager
    def reserve(self, size: int, whole: int = 0) -> Iterator[None]:
        """Hold `size` bytes while a stage runs; raises `NoSpaceNow` if they are not free now.

        `whole`: what the build as a whole may need.
        """
        if self._budget is None or size <= self._given:
            yield
            return
        reservation = self._budget.claim(size)
        if reservation is None:
            raise NoSpaceNow(size, whole)
        with reservation:
            yield

    def wait(self, lacking: NoSpaceNow) -> None:
        """Wait for space and hold it until the build ends. Raises `BuildFailed` or `Cancelled`."""
        if self._budget is None:
            raise AssertionError("without a budget there is nothing to wait for")
        self._waited.close()
        self._given = 0
        waited = self._budget.reserve(lacking.size, self._rules, whole=lacking.whole)
        self._given = self._waited.enter_context(waited)

    def close(self) -> None:
        """Give the space back."""
        self._waited.close()
