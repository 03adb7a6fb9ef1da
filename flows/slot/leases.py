"""Renews the leases of this process, notices lost ones, and writes what their slots are doing.

One thread does it for all. A lease that cannot be renewed belongs to somebody else: its `gone`
event is set, which cancels the work under way, and nothing of that work can be recorded any more.

What a slot is doing changes often and matters only now, so it is not an event but a column of the
lease: updated at most every two seconds, and gone with the lease.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flows.stop import Stop
from machine.background import Background
from state.errors import StateError
from state.records import Lease

if TYPE_CHECKING:
    from state.state import State

_log = logging.getLogger(__name__)

MOST_ACTIVITY = 200
"""Characters of what an engine says it is doing."""
ACTIVITY_SECONDS = 2.0
"""The shortest time between two writes of an activity."""


@dataclass(slots=True, eq=False)
class RenewedLease:
    """A lease that is being renewed. `gone` is set when it is lost or everything stops."""

    lease: Lease
    gone: threading.Event = field(default_factory=threading.Event)
    activity: tuple[str, str] | None = None
    """The cell that the slot is at, and what it is doing; any thread may set it, this module writes
    it."""
    _written: tuple[str, str] | None = None

    def say(self, cell: str, text: str) -> None:
        """Let those who watch see what is being done for a cell."""
        self.activity = (cell, text[:MOST_ACTIVITY])


class LeaseRenewer(Background):
    """Renews what it is given every quarter of a lease's life until it is closed."""

    def __init__(self, state: State, stop: Stop, ttl: float) -> None:
        super().__init__("lease-renewer")
        self._state = state
        self._stop = stop
        self.ttl = ttl
        self._renewed: dict[RenewedLease, None] = {}
        self._lock = threading.Lock()

    @contextmanager
    def renewing(self, lease: Lease) -> Iterator[RenewedLease]:
        """Renew this lease while the block runs."""
        renewed = RenewedLease(lease)
        with self._stop.followed(renewed.gone):
            with self._lock:
                self._renewed[renewed] = None
            try:
                yield renewed
            finally:
                with self._lock:
                    self._renewed.pop(renewed, None)

    def work(self) -> None:
        """Renew until the block is over."""
        pause = self.ttl / 4
        renewed_at = time.monotonic()
        while not self.over.wait(min(pause, ACTIVITY_SECONDS)):
            with self._lock:
                current = tuple(self._renewed)
            for one in current:
                self._write_activity(one)
            if time.monotonic() - renewed_at < pause:
                continue
            began = time.monotonic()
            renewed = [self._renew(one) for one in current]
            # What could not be renewed is tried again soon: after an outage others wait for leases.
            if all(renewed):
                renewed_at = began

    def _write_activity(self, one: RenewedLease) -> None:
        activity = one.activity
        if activity == one._written:
            return
        with suppress(StateError):  # the work does not depend on it
            cell, text = activity or (None, None)
            self._state.set_activity(one.lease, cell, text)
            one._written = activity

    def _renew(self, one: RenewedLease) -> bool:
        """False: the database is away. A lease that runs out meanwhile is still ours if nobody
        could take it, and what is really lost is refused at the next record."""
        try:
            if not self._state.renew(one.lease, self.ttl):
                one.gone.set()
        except Exception as error:  # noqa: BLE001 - without this thread every lease runs out
            if not isinstance(error, StateError):
                _log.warning("the lease of %s is not renewed: %s", one.lease.model, error)
            return False
        return True
