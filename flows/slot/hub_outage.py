"""An outage of the Hugging Face hub: one cell detects it for all, and it is reported once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flows.observe.progress import OUTAGE
from matrix.model import Cell, SourceKind
from matrix.status import FailureClass
from state.records import Kind
from workers.errors import BuildFailed

if TYPE_CHECKING:
    from state.state import State

PAUSE = 300.0
"""Seconds without a request to the hub after one that failed."""


def concerns(cell: Cell, error: object) -> bool:
    """Whether an error means that the hub cannot be reached."""
    from_hub = cell.model.source.kind is SourceKind.HUB
    return from_hub and isinstance(error, BuildFailed) and error.failure is FailureClass.NETWORK


@dataclass(slots=True)
class HubOutage:
    """What the slots of a process know of the hub.

    The outage begins when a cell has failed all its tries. From then on, models in the local cache
    are built and all others fail at once, until one cell asks the hub again after a pause.
    """

    state: State
    sweep_id: int
    stamp: str
    """With the flags that a command about the sweep needs."""
    clock: Callable[[], float] = time.monotonic
    _since: float = 0.0
    _first: BuildFailed | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def suspected(self) -> bool:
        """Whether the last request to the hub failed."""
        return self._first is not None

    @property
    def known(self) -> bool:
        """Whether to build from the local cache alone."""
        return self.suspected and self.clock() - self._since < PAUSE

    def note(self, error: BuildFailed, *, asked: bool) -> BuildFailed:
        """Take in the failure of a cell; returns the failure to record, the same for every cell.

        `asked`: the cell sent a request to the hub.
        """
        with self._lock:
            first = self._first is None
            if self._first is None:
                self._first = self._told(error)
            if asked:
                self._since = self.clock()
        if first:
            text = f"{error.reason}; models that are not in the local cache fail until it is back"
            self.state.note(self.sweep_id, Kind.NOTICE, {OUTAGE: text})
        return self._told(self._first)

    def over(self) -> None:
        """Take in that the hub answered."""
        with self._lock:
            back, self._first = self._first is not None, None
        if back:
            self.state.note(self.sweep_id, Kind.NOTICE, {OUTAGE: ""})

    def _told(self, error: BuildFailed) -> BuildFailed:
        hint = f"when the hub is back: modelmill retry {self.stamp} --class NETWORK"
        return BuildFailed(error.failure, error.stage, error.reason, hint=hint)
