"""One leased model: build its open cells one after the other, publish each while the next builds.

The bench (with its warm engine host) is given back as soon as the last cell is built, so that
another model can be built while this one's last packages are still on their way to the feed.
"""

from __future__ import annotations

import queue
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from feed.errors import Conflict, Corrupt, FeedError, Unauthorized
from feed.interface import LocalFile
from flows.exports import export_id
from flows.leasing import Held
from flows.retrying import retrying
from flows.shop import Bench, Shop
from matrix.model import Cell, PlannedModel
from matrix.status import FailureClass, Status
from state.errors import LeaseLost
from state.records import Facts
from workers.builder import Built
from workers.errors import BuildFailed, Cancelled

MOST_UNPUBLISHED = 2
"""Built packages that may wait for the feed before the building waits too: they take disk."""


@dataclass(slots=True)
class Turn:
    """A bench on loan; giving it back twice does no harm."""

    shop: Shop
    bench: Bench | None

    def end(self) -> None:
        """Back to the shop."""
        bench, self.bench = self.bench, None
        if bench is not None:
            self.shop.benches.put(bench)
