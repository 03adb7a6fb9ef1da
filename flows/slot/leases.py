"""Renews the leases of this process and notices the ones that are lost.

One thread renews them all. A lease that cannot be renewed belongs to somebody else: its `gone`
event is set, which cancels the work under way, and nothing of that work can be recorded any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from flows.sweep.stop import Stop
from state.errors import StateError
from state.ledger import State
from state.records import Lease

_log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class RenewedLease:
    """A lease that is being renewed. `gone` is set when it is lost or everything stops."""

    lease: Lease
    gone: threading.Event = field(default_factory=threading.Event)


class LeaseRenewer:
    """Renews what it is given every quarter of a lease's life until it is closed."""

    def __init__(self, state: State, stop: Stop, ttl: float = LEASE_SECONDS) -> None:
        self._state = state
        self._stop = stop
        self.ttl = ttl
        self._renewed: set[RenewedLease] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease-renewer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._thread.join()

    @contextmanager
    def renewing(self, lease: Lease) -> Iterator[RenewedLease]:
        """Renew this lease while the block runs."""
        renewed = RenewedLease(lease)
        with self._stop.followed(renewed.gone):
            with self._lock:
                self._renewed.add(renewed)
            try:
                yield renewed
            finally:
                with self._lock:
                    self._renewed.discard(renewed)

    def _renew(self) -> None:
        while not self._closed.wait(self.ttl / 4):
            with self._lock:
                current = tuple(self._renewed)
            for one in current:
                if not self._is_ours(one.lease):
                    one.gone.set()

    def _is_ours(self, lease: Lease) -> bool:
        try:
            return self._state.renew(lease, self.ttl)
        except Exception as error:  # noqa: BLE001 - without this thread every lease runs out
            # The database is away: three more tries fit into the lease, and one that runs out is
            # still ours if nobody could take it. What is really lost is refused at the next record.
            if not isinstance(error, StateError):
                _log.warning("the lease of %s is not renewed: %s", lease.model, error)
            return True
