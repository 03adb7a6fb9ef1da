"""The HTTP server of the stand-in: reads requests, applies faults, keeps a record."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
import urllib.parse
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.fakes.azure.faults import Effect, Fault, Faults, When
from tests.fakes.azure.model import Feed, Organization, Problem
from tests.fakes.azure.routes import Answer, Asked, Routes
from tests.fakes.azure.toolkit import Releases

_OPEN = {"archive", "behaviour"}
"""Routes that ask for no token."""


@dataclass(frozen=True)
class Seen:
    """One request, as it was recorded."""

    route: str
    method: str
    path: str
    query: dict[str, str]
    token: str | None
    status: int
    headers: dict[str, str]


class AzureStandIn:
    """The service on a loopback port. A context manager."""

    def __init__(self) -> None:
        self.organization = Organization()
        self.releases = Releases()
        self.routes = Routes(self.organization, self.releases)
        self.faults = Faults()
        self.behaviour: deque[dict[str, Any]] = deque()
        """How the next runs of the tool misbehave; {} is a good run."""
        self.on_request: Callable[[str], None] = lambda _route: None
        """Called with the route before a request is handled: a test acts in between."""
        self.seen: list[Seen] = []
        self.lock = threading.RLock()
        self.feed = Feed("models", "Lab")
        self.shared = Feed("shared", None)
        self.organization.feeds += [self.feed, self.shared]
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.standin = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def base(self) -> str:
        """Where the server is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The feed of the project, as a user would write it."""
        return f"azure:{self.base}/acme/Lab/models"

    def counts(self) -> Counter[str]:
        """Requests by route."""
        with self.lock:
            return Counter(seen.route for seen in self.seen)

    def forget(self) -> None:
        """Start the record anew."""
        with self.lock:
            self.seen.clear()

    def plan(self, *faults: Fault) -> None:
        """Add faults."""
        self.faults.plan(*faults)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.faults.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, asked: Asked, route: str, handler: Any) -> Answer:
        """The good answer, or the service's own error."""
        org = self.organization
        if route not in _OPEN and not org.allows(asked.token, "reader"):
            text = "Access Denied: The Personal Access Token used has expired."
            return _problem(Problem(401, "UnauthorizedRequestException", text))
        try:
            with self.lock:
                answer: Answer = handler(asked)
                return answer
        except Problem as problem:
            return _problem(problem)

    def behave(self) -> Answer:
        """What a run of the tool is to do, asked by the tool itself."""
        with self.lock:
            return Answer.of(self.behaviour.popleft() if self.behaviour else {})


def _problem(problem: Problem) -> Answer:
    return replace(Answer.of(problem.body), status=problem.status)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    standin: AzureStandIn


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_args: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        standin = self.server.standin
        parts = urllib.parse.urlsplit(self.path)
        asked = Asked(
            method=self.command,
            path=parts.path,
            query=dict(urllib.parse.parse_qsl(parts.query)),
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
            token=self._token(),
            base=standin.base,
        )
        if asked.path == "/behaviour":
            self._send(standin.behave())
            return
        route, parts_of_path, handler = standin.routes.find(asked)
        standin.on_request(route)
        asked = replace(asked, part=parts_of_path)
        fault = standin.faults.take(route)
        if fault is None:
            self._finish(route, asked, standin.answer(asked, route, handler))
        elif fault.when is When.BEFORE and fault.effect in {Effect.ANSWER, Effect.RESET}:
            self._strike(route, asked, fault, Answer())
        else:
            self._strike(route, asked, fault, standin.answer(asked, route, handler))

    do_GET = do_PUT = do_PATCH = do_POST = do_OPTIONS = _serve  # noqa: N815 - the base class's names

    def _token(self) -> str | None:
        kind, _, value = (self.headers.get("Authorization") or "").partition(" ")
        if kind == "Basic":
            return base64.b64decode(value).decode().partition(":")[2]
        return value or None

    def _finish(self, route: str, asked: Asked, answer: Answer, **headers: str) -> None:
        self._record(route, asked, answer.status)
        self._send(answer, headers)

    def _strike(self, route: str, asked: Asked, fault: Fault, good: Answer) -> None:
        if fault.effect is Effect.HEADERS:
            self._finish(route, asked, good, **fault.headers)
        elif fault.effect is Effect.ANSWER:
            answer = Answer(fault.status, fault.body, fault.content_type)
            self._finish(route, asked, answer, **fault.headers)
        else:
            self._record(route, asked, 0)
            if fault.effect is Effect.TRUNCATE:
                self._send(good, cut=True)
            if fault.effect is Effect.HANG:
                self.server.standin.faults.released.wait()
            self._reset()

    def _send(
        self, answer: Answer, headers: dict[str, str] | None = None, *, cut: bool = False
    ) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        body = answer.body[: len(answer.body) // 2] if cut else answer.body
        self.wfile.write(body)
        self.wfile.flush()

    def _reset(self) -> None:
        """End the connection the hard way: the other side sees a reset."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _record(self, route: str, asked: Asked, status: int) -> None:
        standin = self.server.standin
        seen = Seen(
            route,
            asked.method,
            asked.path,
            dict(asked.query),
            asked.token,
            status,
            dict(self.headers.items()),
        )
        with standin.lock:
            standin.seen.append(seen)


def wrapped(status: int, key: str, message: str) -> bytes:
    """The body of a service error, for faults."""
    return json.dumps(Problem(status, key, message).body).encode()
