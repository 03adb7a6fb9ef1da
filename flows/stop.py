"""A stop request for a whole run, with its reason, that every thread sees."""

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
from machine.processes import end_in_order
from matrix.errors import Exit, MillError

GRACE = 4.0
"""Seconds that a run has to end by itself after a signal; the prompt is back within five."""


class Stop:
    """A request to stop, with its reason. `event` can be passed to anything that waits."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.error: MillError | None = None
        """The error that makes all further work pointless; None if a person or the system asked."""
        self._followers: set[threading.Event] = set()
        # Reentrant: a signal handler may run while the main thread holds it.
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
        """Let a stop set this event too while the block runs."""
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
        """Sleep until the time is over or a stop; returns whether there is a stop."""
        return self.event.wait(seconds)

    @property
    def exit_code(self) -> Exit:
        """The exit code of a process that this stop ended."""
        return self.error.exit_code if self.error else Exit.INTERRUPTED


@contextmanager
def stopped_by_signals(stop: Stop, grace: float = GRACE) -> Iterator[None]:
    """Ctrl-C, SIGTERM and Windows' Ctrl-Break ask for the stop; main thread only.

    A separate thread listens: a handler in the main thread would run only between its blocking
    calls, and could run while that thread holds a lock. The listener ends the process when the
    block does not end in time, because a feed may never answer.
    """
    names = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGBREAK"):
        names.append(signal.SIGBREAK)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    listener = threading.Thread(target=_listen, args=(theirs, stop, grace), daemon=True)
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
    """Do nothing: Python has written to the wakeup socket already."""


def _listen(signals: socket.socket, stop: Stop, grace: float) -> None:
    if not signals.recv(1):
        return
    stop.ask()
    deadline = time.monotonic() + grace
    # Further signals change nothing.
    while (left := deadline - time.monotonic()) > 0:
        signals.settimeout(left)
        with contextlib.suppress(TimeoutError):
            if not signals.recv(64):
                return
    abandon()


def abandon() -> NoReturn:
    """End this process and all its children now.

    Records are safe, leases of a dead process are void, and the next run removes its files.
    """
    end_in_order()
    kill(family(os.getpid())[1:])
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the live view has hidden the cursor
    os.write(2, b"modelmill: interrupted; what did not end in time was killed\n")
    os._exit(Exit.INTERRUPTED)
