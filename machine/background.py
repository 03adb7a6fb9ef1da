"""Work that goes on in a thread of its own while a block runs."""

from __future__ import annotations

import contextvars
import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """Works from the beginning of the block; its end is told to the work, and waits for it."""

    def __init__(self, name: str) -> None:
        self.over = threading.Event()
        """The block has ended."""
        # The context carries Prefect's flow run to whoever shows something there.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self.work,), name=name, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.over.set()
        self._thread.join()

    @abstractmethod
    def work(self) -> None:
        """What the thread does until the block is over."""
