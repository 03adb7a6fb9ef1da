"""Why a run ends before its work does: set once, seen by every thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from matrix.errors import Exit, MillError


class Stop:
    """A stop that has a reason. `event` may be handed to whatever waits or works."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.error: MillError | None = None
        """What made going on pointless; None: a person or the system asked."""
        self._followers: set[threading.Event] = set()
        # Reentrant: a signal handler runs in the middle of whatever the main thread is at.
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return self.event.is_set()

    def ask(self, error: MillError | None = None) -> None:
        """Stop everything; the first reason stays."""
        with self._lock:
            if not self.event.is_set():
                self.error = error
                self.event.set()
                for follower in tuple(self._followers):
                    follower.set()

    @contextmanager
    def followed(self, event: threading.Event) -> Iterator[None]:
        """While the block runs, a stop sets this event too."""
        with self._lock:
            self._followers.add(event)
            if self.event.is_set():
                event.set()
        try:
            yield
        finally:
            with self._lock:
                self._followers.discard(event)

    def wait(self, seconds: float) -> bool:
        """Sleep, but not through a stop."""
        return self.event.wait(seconds)

    @property
    def exit_code(self) -> Exit:
        """What the process says if this stop ended it."""
        return self.error.exit_code if self.error else Exit.INTERRUPTED


@contextmanager
def stopped_by_signals(stop: Stop) -> Iterator[None]:
    """Ctrl-C, SIGTERM and Windows' Ctrl-Break ask for the stop; main thread only."""
    names = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGBREAK"):
        names.append(signal.SIGBREAK)

    def ask(_signum: int, _frame: FrameType | None) -> None:
        stop.ask()

    before = {name: signal.signal(name, ask) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
