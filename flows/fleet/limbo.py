"""Flow runs that a worker took and never began: it died in between, and Prefect waits for ever.

Told by how long we see them so, not by their times: the server's clock may not be ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from uuid import UUID

from prefect.client.schemas.objects import FlowRun

STUCK = 90.0
"""Seconds in which a worker starts a process, even on a busy machine."""


@dataclass(slots=True)
class Limbo:
    """Since when we see runs pending."""

    _since: dict[UUID, float] = field(default_factory=dict)

    def holds(self, run: FlowRun) -> bool:
        """Whether nobody will begin it any more; ask again and again."""
        if run.state is None or not run.state.is_pending():
            return False
        now = time.monotonic()
        # By the state: one that is pending for the second time gets as long as the first time.
        return now - self._since.setdefault(run.state.id, now) > STUCK
