"""A server of a cache in the dialect of bazel-remote: GET, HEAD and PUT of `/ac/KEY` and
`/cas/SHA256`, which checks what it is given. It can be told to misbehave."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class CacheServer:
    """What it keeps, what it was asked, and how it misbehaves."""

    entries: dict[str, bytes] = field(default_factory=dict)
    """By path, such as `/cas/SHA256`."""
    asked: list[str] = field(default_factory=list)
    """Every request, as `GET /cas/SHA256`."""
    headers: list[str | None] = field(default_factory=list)
    """The credentials of each request."""
    fault: Callable[[Handler, str, str], bool] | None = None
    """From a handler, a method and a path to whether it has answered in its own way."""
    url: str = ""

    def count(self, method: str) -> int:
        return sum(one.startswith(f"{method} ") for one in self.asked)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    cache: CacheServer

    def do_GET(self) -> None:
        if not self._faulty("GET"):
            found = self.cache.entries.get(self.path)
            self.answer(200 if found is not None else 404, found or b"")

    def do_HEAD(self) -> None:
        if not self._faulty("HEAD"):
            self.answer(200 if self.path in self.cache.entries else 404)

    def do_PUT(self) -> None:
        if self._faulty("PUT"):
            return
        data = self.rfile.read(int(self.headers["Content-Length"]))
        space, digest = self.path.split("/")[1:]
        if space == "cas" and hashlib.sha256(data).hexdigest() != digest:
            self.answer(400)
            return
        self.cache.entries[self.path] = data
        self.answer(200)

    def _faulty(self, method: str) -> bool:
        self.cache.asked.append(f"{method} {self.path}")
        self.cache.headers.append(self.headers["Authorization"])
        return self.cache.fault is not None and self.cache.fault(self, method, self.path)

    def answer(self, status: int, body: bytes = b"", length: int | None = None) -> None:
        """Answer, maybe with another length than there is."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_about: object) -> None:
        """Say nothing."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_about: object) -> None:
        """A client may go away at any time."""


@contextmanager
def cache_server() -> Iterator[CacheServer]:
    """A server on a free port of this machine."""
    cache = CacheServer()
    handler = type("BoundHandler", (Handler,), {"cache": cache})
    with _Quiet(("127.0.0.1", 0), handler) as server:
        cache.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield cache
        finally:
            server.shutdown()
            thread.join()
