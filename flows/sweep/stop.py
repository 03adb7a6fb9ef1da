"""Why a run ends before its work does: set once, seen by every thread."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from machine.children import family, kill
from matrix.errors import Exit, MillError

PATIENCE = 4.0
"""Seconds that everything has to end by itself after a signal; all of it is to take five."""


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
def stopped_by_signals(stop: Stop, patience: float = PATIENCE) -> Iterator[None]:
    """Ctrl-C, SIGTERM and Windows' Ctrl-Break ask for the stop; main thread only.

    A thread of its own listens: a handler in the main thread would wait for whatever that is
    blocked in, and could meet itself in the middle of a lock. The same thread ends the process
    when the block has not ended in time: a feed may never answer.
    """
    names = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGBREAK"):
        names.append(signal.SIGBREAK)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    listener = threading.Thread(target=_listen, args=(theirs, stop, patience), daemon=True)
    wakeup = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
    before = {name: signal.signal(name, _nothing) for name in names}
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for name, handler in before.items():
            signal.signal(name, handler)
        ours.close()
        listener.join()
        theirs.close()


def _nothing(_signum: int, _frame: FrameType | None) -> None:
    """The wakeup socket has been written to already; that is all a signal does."""


def _listen(signals: socket.socket, stop: Stop, patience: float) -> None:
    if not signals.recv(1):
        return
    stop.ask()
    deadline = time.monotonic() + patience
    # Further signals change nothing: what can be done is being done.
    while (left := deadline - time.monotonic()) > 0:
        signals.settimeout(left)
        with contextlib.suppress(TimeoutError):
            if not signals.recv(64):
                return
    abandon()


def abandon() -> NoReturn:
    """End the process and all it has started, now. What is recorded is safe, leases of a process
    that is gone are void, and the next run sweeps what lies about."""
    kill(family(os.getpid())[1:])
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the live view has hidden the cursor
    os.write(2, b"modelmill: interrupted; what did not end in time was killed\n")
    os._exit(Exit.INTERRUPTED)
