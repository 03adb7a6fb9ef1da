"""Keeping the leases of this process alive, and noticing the ones that are lost.

One thread renews them all. A lease that cannot be renewed is somebody else's now: its `gone`
event is set, which cancels the work under way; nothing of that work can be recorded any more.
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
class Held:
    """A lease that is being renewed. `gone` is set when it is lost or everything stops."""

    lease: Lease
    gone: threading.Event = field(default_factory=threading.Event)


class LeaseKeeper:
    """Renews what it holds every quarter of the lease's life until it is closed."""

    def __init__(self, state: State, stop: Stop, ttl: float = LEASE_SECONDS) -> None:
        self._state = state
        self._stop = stop
        self.ttl = ttl
        self._held: set[Held] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._thread.join()

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[Held]:
        """Renew this lease while the block runs."""
        held = Held(lease)
        with self._stop.followed(held.gone):
            with self._lock:
                self._held.add(held)
            try:
                yield held
            finally:
                with self._lock:
                    self._held.discard(held)

    def _renew(self) -> None:
        while not self._closed.wait(self.ttl / 4):
            with self._lock:
                held_now = tuple(self._held)
            for held in held_now:
                if not self._renewed(held):
                    held.gone.set()

    def _renewed(self, held: Held) -> bool:
        try:
            return self._state.renew(held.lease, self.ttl)
        except Exception as error:  # noqa: BLE001 - without this thread every lease runs out
            # The database is away: three more tries fit into the lease, and one that runs out is
            # still ours if nobody could take it. What is really lost is refused at the next record.
            if not isinstance(error, StateError):
                _log.warning("the lease of %s is not renewed: %s", held.lease.model, error)
            return True
