"""Keeping the leases of this process alive, and noticing the ones that are lost.

One thread renews them all. A lease that cannot be renewed is somebody else's now: its `gone`
event is set, which cancels the work under way; nothing of that work can be recorded any more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from flows.stop import Stop
from state.ledger import State
from state.records import Lease

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
        self._threads = [
            threading.Thread(target=self._renew, name="lease-keeper", daemon=True),
            threading.Thread(target=self._watch, name="lease-stopper", daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closed.set()
        self._threads[0].join()

    @contextmanager
    def keep(self, lease: Lease) -> Iterator[Held]:
        """Renew this lease while the block runs."""
        held = Held(lease)
        with self._lock:
            self._held.add(held)
        if self._stop:
            held.gone.set()
        try:
            yield held
        finally:
            with self._lock:
                self._held.discard(held)

    def _renew(self) -> None:
        while not self._closed.wait(self.ttl / 4):
            for held in self._all():
                if not self._state.renew(held.lease, self.ttl):
                    held.gone.set()

    def _watch(self) -> None:
        self._stop.event.wait()
        for held in self._all():
            held.gone.set()

    def _all(self) -> tuple[Held, ...]:
        with self._lock:
            return tuple(self._held)
