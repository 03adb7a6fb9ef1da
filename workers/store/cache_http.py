"""A cache that is spoken to in HTTP as bazel-remote understands it: GET, HEAD and PUT.

It is asked directly, without proxies, and no redirect is followed: credentials go nowhere else.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from machine.disk import reason
from machine.files import CHUNK, blocks
from workers.store.cache import CacheRefuses, CacheTrouble, TooLarge, copy, refuse_if_cancelled

CONNECT = 5.0
IDLE = 30.0
"""Seconds without a byte."""
LEAST = 60.0
"""Seconds that any request may take."""
RATE = 1 << 20
"""Bytes for which a request may take a second more; a slower cache saves little."""
_LOOK = 0.2
"""Seconds between two looks at whether a request must end."""

_DONE = frozenset({200, 201, 202, 204})
_MISSING = frozenset({404, 410})
_MAY_PASS = frozenset({408, 425, 429})


class HttpPlace:
    """The entries of a cache on a server."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """`headers`: the credentials, if there are any."""
        self.where = url.rstrip("/")
        parts = urlsplit(self.where)
        self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        self._tls = parts.scheme == "https"
        self._headers = dict(headers or {})

    def fetch(self, name: str, out: BinaryIO, most: int, cancel: threading.Event | None) -> bool:
        """Write the bytes of an entry; False: there is none."""
        with self._answer("GET", name, cancel, most) as answer:
            if found := _is_there(answer):
                copy(_received(answer), out, most, cancel)
            return found

    def has(self, name: str, cancel: threading.Event | None) -> bool:
        """Whether there is such an entry."""
        with self._answer("HEAD", name, cancel) as answer:
            return _is_there(answer)

    def put(self, name: str, source: Path | bytes, cancel: threading.Event | None) -> None:
        """Keep an entry."""
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        body = (source,) if isinstance(source, bytes) else blocks(source)
        with self._answer("PUT", name, cancel, size, body) as answer:
            if answer.status == http.client.REQUEST_ENTITY_TOO_LARGE:
                raise TooLarge
            _refuse(answer)

    @contextmanager
    def _answer(
        self,
        method: str,
        name: str,
        cancel: threading.Event | None,
        size: int = 0,
        body: Iterable[bytes] | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask, and close the connection in the end. `size`: bytes that are sent or awaited."""
        refuse_if_cancelled(cancel)
        limit = LEAST + size / RATE
        with _failures():
            connection = self._connected()
        # Held apart: the connection forgets its socket when an answer ends with it.
        line = connection.sock
        try:
            with _cut(line, limit, cancel):
                headers = {**self._headers, **({"Content-Length": str(size)} if body else {})}
                with _failures():
                    connection.putrequest(method, f"{self._path}/{name}", skip_accept_encoding=True)
                    for key, value in headers.items():
                        connection.putheader(key, value)
                    connection.endheaders()
                for block in body or ():
                    try:
                        connection.send(block)
                    except OSError:
                        break  # a server that refuses may say so before it has everything
                with _failures():
                    answer = connection.getresponse()
                with answer:
                    yield answer
        finally:
            connection.close()
            line.close()

    def _connected(self) -> http.client.HTTPConnection:
        if self._tls:
            context = ssl.create_default_context()
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT, context=context
            )
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT)
        try:
            made.connect()
            made.sock.settimeout(IDLE)
        except BaseException:
            made.close()
            raise
        return made


def _is_there(answer: http.client.HTTPResponse) -> bool:
    if answer.status in _MISSING:
        return False
    _refuse(answer)
    return True


def _refuse(answer: http.client.HTTPResponse) -> None:
    """Raise unless the server has done what it was asked for. What it says is not repeated."""
    if answer.status in _DONE:
        return
    text = f"it answers {answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
    if answer.status >= http.client.INTERNAL_SERVER_ERROR or answer.status in _MAY_PASS:
        raise CacheTrouble(text)
    raise CacheRefuses(text)


def _received(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    if answer.length is None and not answer.chunked:
        raise CacheTrouble("its answer has no length")  # its end could be anywhere
    while True:
        with _failures():
            block = answer.read1(CHUNK)
        if not block:
            break
        yield block
    if answer.length:
        raise CacheTrouble("its answer was cut off")


@contextmanager
def _failures() -> Iterator[None]:
    """What goes wrong on the way."""
    try:
        yield
    except OSError as error:
        raise CacheTrouble(reason(error)) from None
    except (http.client.HTTPException, ValueError) as error:
        raise CacheTrouble(f"it does not answer in HTTP ({type(error).__name__})") from None


@contextmanager
def _cut(line: socket.socket, limit: float, cancel: threading.Event | None) -> Iterator[None]:
    """End a request that takes too long as a whole, as one does that sends a byte now and then, or
    that nobody wants any more."""
    done, late = threading.Event(), threading.Event()
    deadline = time.monotonic() + limit

    def watch() -> None:
        while not done.wait(_LOOK):
            if time.monotonic() > deadline:
                late.set()
            if late.is_set() or (cancel is not None and cancel.is_set()):
                with suppress(OSError):
                    socket.socket.shutdown(line, socket.SHUT_RDWR)
                return

    watcher = threading.Thread(target=watch, name="cache", daemon=True)
    watcher.start()
    trouble = None
    try:
        yield
    except CacheTrouble as error:
        trouble = error
    finally:
        done.set()
        watcher.join()
    refuse_if_cancelled(cancel)
    if late.is_set():  # what was read until then may look like an end
        raise CacheTrouble(f"a request took longer than {limit:.0f} s")
    if trouble is not None:
        raise trouble
