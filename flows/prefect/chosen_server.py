"""The server that shows a local sweep: the user's by PREFECT_API_URL, or one of our own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from flows.prefect.server import TOO_LATE, Server, ServerFailed, start_server
from matrix.errors import MillError


@dataclass(slots=True)
class ChosenServer:
    """Our own server is started when it is first needed, and again when it died."""

    home: Path
    environ: Mapping[str, str]
    _own: Server | None = None

    @property
    def given(self) -> str:
        """The address of the user's server; empty: there is none."""
        return self.environ.get("PREFECT_API_URL", "")

    @property
    def lives(self) -> bool:
        """Whether asking it again makes sense without starting another one."""
        return bool(self.given) or (self._own is not None and self._own.lives)

    @property
    def starts(self) -> bool:
        """Whether it is our own, and nothing is known to keep it from answering later."""
        return not self.given and (self._own is None or not self._own.trouble())

    def url(self, cancel: threading.Event) -> str:
        """Its address once it can be asked."""
        if self.given:
            return self.given
        own = self._own
        if own is None or not own.lives:
            if own is not None:
                own.stop()
            own = self._own = start_server(self.home, self.environ, cancel)
            own.wait(cancel)
        if cancel.is_set():
            own.stop(0.0)  # nobody else does any more
            raise ServerFailed(TOO_LATE)
        return own.url

    def problem(self, error: Exception | None = None) -> str:
        """What is wrong with it, in a few words; without an `error`: it has not answered yet."""
        if isinstance(error, MillError):
            return str(error)
        if self._own is not None and (why := self._own.trouble()):
            return why
        return f"{self._name} {_symptom(error)}"

    def stop(self, limit: float) -> None:
        """End our own server."""
        own, self._own = self._own, None
        if own is not None:
            own.stop(limit)

    @property
    def _name(self) -> str:
        if not self.given:
            return "the embedded Prefect server"
        return f"the Prefect server {urlsplit(self.given).hostname}"  # without its password


def _symptom(error: Exception | None) -> str:
    if error is None:
        return "had not taken everything when the sweep ended"
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return "does not answer in time"
    if isinstance(error, httpx.HTTPStatusError):
        return f"answers {error.response.status_code} {error.response.reason_phrase}"
    if isinstance(error, httpx.TransportError):
        return "does not answer"
    return f"cannot be used: {type(error).__name__}"
