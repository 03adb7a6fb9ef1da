"""What moves on a terminal while a command works: a line that says what it waits for, until it
prints, and the progress of a transfer."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from feed.interface import Progress

_FRAMES = "-\\|/"
_DELAY = 0.1
"""Seconds before the line appears: a short command shows none."""
_INTERVAL = 0.1


class Activity:
    """The line, drawn by a thread of its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._began = 0.0
        self._drawn = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def show(self, text: str) -> None:
        """Show what the command waits for."""
        with self._lock:
            if not self._text:
                self._began = time.monotonic()
            self._text = text
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="activity", daemon=True)
                self._thread.start()

    def hide(self) -> None:
        """Erase the line, so that something else can be printed."""
        with self._lock:
            self._text = ""
            if self._drawn:
                self._write("\r\x1b[K")
                self._drawn = False

    def _run(self) -> None:
        time.sleep(_DELAY)
        while self._draw():
            time.sleep(_INTERVAL)

    def _draw(self) -> bool:
        with self._lock:
            if not self._text:
                self._thread = None
                return False
            spent = int(time.monotonic() - self._began)
            frame = _FRAMES[int(time.monotonic() / _INTERVAL) % len(_FRAMES)]
            line = f"{frame} {self._text}" + (f" {spent}s" if spent else "")
            width = max(20, shutil.get_terminal_size().columns)
            self._write(f"\r{line[: width - 1]}\x1b[K")
            self._drawn = True
            return True

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # whatever prints next notices that the terminal is gone
            self._text = ""


def waiting_for(text: str) -> None:
    """Show on a terminal what the command waits for, until it prints something."""
    activity = getattr(sys.stdout, "activity", None)
    if isinstance(activity, Activity):
        activity.show(text)


@contextmanager
def meter(title: str) -> Iterator[Progress | None]:
    """A progress bar on standard error; None if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
