"""Stands for Microsoft's package `windowsml` 2.5: its names and what its text says they do.

A provider's library is known once it is ready; `ensure_ready` downloads one that is not present;
providers belong to their catalog. Releasing a catalog crashes some machines: here it is recorded.
`OFFERED` is what Windows offers for this machine; in an environment of its own it is read from the
file `windowsml.json` there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class EpReadyState(IntEnum):
    """How far a provider is from being used."""

    Ready = 0
    NotReady = 1
    NotPresent = 2


@dataclass
class Offered:
    """A provider of Windows' catalog."""

    name: str
    version: str = "1.8.84.0"
    state: EpReadyState = EpReadyState.Ready
    library: str = "C:/Program Files/WindowsApps/provider.dll"
    fails: str = ""
    """What `ensure_ready` raises."""
    downloads: int = 0


OFFERED: list[Offered] = []
RELEASED: list[str] = []


class ExecutionProvider:
    """A handle that belongs to its catalog."""

    def __init__(self, offered: Offered, catalog: EpCatalog) -> None:
        self._offered, self._catalog = offered, catalog

    @property
    def _own(self) -> Offered:
        assert self._catalog.open, "the handle outlived its catalog"
        return self._offered

    @property
    def name(self) -> str:
        return self._own.name

    @property
    def version(self) -> str:
        return self._own.version

    @property
    def ready_state(self) -> EpReadyState:
        return self._own.state

    @property
    def library_path(self) -> str:
        return self._own.library if self._own.state == EpReadyState.Ready else ""

    def ensure_ready(self) -> None:
        own = self._own
        if own.fails:
            raise OSError(own.fails)
        own.downloads += own.state == EpReadyState.NotPresent
        own.state = EpReadyState.Ready

    def ensure_ready_async(
        self,
        on_complete: Callable[[], None] | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> AsyncOperation:
        return AsyncOperation(self, on_complete, on_progress)


class AsyncOperation:
    """Ends at once; a failure is told by `get_status`."""

    def __init__(
        self,
        provider: ExecutionProvider,
        on_complete: Callable[[], None] | None,
        on_progress: Callable[[float], None] | None,
    ) -> None:
        self._failure: OSError | None = None
        try:
            provider.ensure_ready()
        except OSError as error:
            self._failure = error
        if on_progress:
            on_progress(1.0)
        if on_complete:
            on_complete()

    def get_status(self, wait: bool = False) -> None:
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Nothing is left."""


class EpCatalog:
    """The providers that Windows offers for the devices of this machine."""

    def __init__(self) -> None:
        self.open = True
        offered = Path(sys.prefix) / "windowsml.json"
        if offered.exists():
            rows = json.loads(offered.read_text("utf-8"))
            OFFERED[:] = [Offered(**{**row, "state": EpReadyState(row["state"])}) for row in rows]

    def find_all_providers(self) -> list[ExecutionProvider]:
        return [ExecutionProvider(one, self) for one in OFFERED]

    def close(self) -> None:
        self.open = False
        RELEASED.append("the catalog")

    def __del__(self) -> None:
        self.close()
