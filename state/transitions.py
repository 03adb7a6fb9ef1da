"""Which status may follow which, in one table for recording, leases and the schema."""

from __future__ import annotations

from collections.abc import Mapping

from matrix.status import FAILED, FailureClass, Status

RUNNING = (
    Status.BUILDING,
    Status.BUILT,
    Status.VERIFYING,
    Status.VERIFIED,
    Status.PUBLISHING,
)
"""The statuses of a leased cell, in order. Steps may be skipped but not taken back, except that a
cell can be built again (its local bytes were evicted before they were published)."""

WAITING = (Status.PLANNED, Status.CANCELLED)

FINAL = frozenset({Status.PUBLISHED, Status.UNCHANGED})
"""Recording cannot change these. Only the feed, which is the authority, can revoke `published`."""


def _sources() -> dict[Status, frozenset[Status]]:
    sources = {
        status: frozenset({*WAITING, *RUNNING[: place + 1]}) for place, status in enumerate(RUNNING)
    }
    sources[Status.BUILDING] = frozenset({*WAITING, *RUNNING})
    for status in (*FINAL, *FAILED):
        sources[status] = frozenset({*WAITING, *RUNNING})
    sources[Status.PLANNED] = frozenset({Status.CANCELLED, *RUNNING})
    sources[Status.CANCELLED] = frozenset({Status.PLANNED, *RUNNING})
    sources[Status.SKIPPED] = frozenset(WAITING)
    return sources


SOURCES: Mapping[Status, frozenset[Status]] = _sources()
"""status -> the statuses it may follow."""

DEFAULT_CLASS: Mapping[Status, FailureClass] = {
    Status.BUILD_FAILED: FailureClass.UNKNOWN,
    Status.BUILD_TIMEOUT: FailureClass.TIMEOUT,
    Status.VERIFY_FAILED: FailureClass.VERIFY,
    Status.PUBLISH_FAILED: FailureClass.PUBLISH,
    Status.CONFLICT: FailureClass.PUBLISH,
    Status.UNSUPPORTED: FailureClass.UNSUPPORTED,
}
"""The failure class of a failed status that comes without one."""
