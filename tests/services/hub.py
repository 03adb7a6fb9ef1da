"""A stand-in for the Hugging Face hub on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Files = Mapping[str, bytes]


@dataclass
class Hub:
    """Repositories by id; every other one cannot be reached."""

    repositories: Mapping[str, Files]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    """Repositories, as often as somebody wanted something of them."""


@contextmanager
def serve(repositories: Mapping[str, Files]) -> Iterator[Hub]:
    """The hub while the block runs."""
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: object) -> None:
            """Quiet."""

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            words = self.path.partition("?")[0].strip("/").split("/")
            api = words[:2] == ["api", "models"]
            name = "/".join(words[2:4] if api else words[:2])
            hub.asked.append(name)
            files = hub.repositories.get(name)
            if files is None:
                return self._send(503, b"", body=body)
            if api:
                listed = [{"rfilename": file} for file in files]
                document = {"id": name, "sha": COMMIT, "siblings": listed}
                return self._send(200, json.dumps(document).encode(), body=body)
            content = files.get("/".join(words[4:]))
            return self._send(404 if content is None else 200, content or b"", body=body)

        def _send(self, status: int, content: bytes, *, body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "application/json")
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
