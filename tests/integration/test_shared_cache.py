"""Machines that share a cache: a folder and a server, well and ill behaved."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from machine.waits import Cancelled, WaitRules
from matrix.errors import Exit
from tests.engines.builder import BuilderHarness
from tests.fakes.cache_server import CacheServer, Handler, cache_server
from tests.machine.timing import eventually
from tests.sweeps.command import Project, model
from tests.sweeps.in_memory import small_model
from workers.store import cache as module
from workers.store import cache_http
from workers.store.cache import Cache
from workers.store.cache_http import HttpPlace

SECRET = "hunter2-hunter2"


class Machine(BuilderHarness):
    """A machine with a store of its own, and a cache on a server."""

    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root)
        self.told: list[str] = []
        self.cache = Cache(HttpPlace(url), self.store, told=self.told.append)
        self.builder.cache = self.cache

    def build(self) -> str:
        (cell,) = small_model(cells=1).cells
        built = self.builder.build(cell)
        built.release()
        return built.tree


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CacheServer]:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    with cache_server() as made:
        yield made


@pytest.fixture
def machines(tmp_path: Path, server: CacheServer) -> Iterator[Callable[[str], Machine]]:
    with ExitStack() as opened:

        def make(name: str) -> Machine:
            machine = Machine(tmp_path / name, server.url)
            opened.callback(machine.store.close)
            return machine

        yield make


def test_a_stage_runs_on_one_machine_only(
    machines: Callable[[str], Machine], server: CacheServer
) -> None:
    one, other = machines("one"), machines("other")
    tree = one.build()
    sent = server.count("PUT")
    assert sent == len(server.entries)
    assert other.build() == tree
    assert (other.host.ran, one.told, other.told) == ([], [], [])
    assert server.count("PUT") == sent


def _drip(handler: Handler, *_about: str) -> bool:
    """Send a byte now and then, without an end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while handler.cache.fault is _drip:
        handler.wfile.write(b"x")
        threading.Event().wait(0.05)
    return True


def _drip_headers(handler: Handler, *_about: str) -> bool:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while handler.cache.fault is _drip_headers:
        handler.wfile.write(b"X: y\r\n")
        threading.Event().wait(0.5)
    return True


def _silence(handler: Handler, *_about: str) -> bool:
    while handler.cache.fault is _silence:
        threading.Event().wait(0.05)
    return True


def _endless(handler: Handler, *_about: str) -> bool:
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 60))
    handler.end_headers()
    while True:  # until the other side has had enough
        handler.wfile.write(b"x" * 65536)


def _no_length(handler: Handler, *_about: str) -> bool:
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    return True


def _answers(status: int, body: bytes = b"") -> Callable[[Handler, str, str], bool]:
    def fault(handler: Handler, _method: str, _path: str) -> bool:
        handler.answer(status, body)
        return True

    return fault


def _cut(handler: Handler, _method: str, path: str) -> bool:
    found = handler.cache.entries.get(path, b"x" * 100)
    handler.answer(200, found[: len(found) // 2], len(found))
    handler.close_connection = True
    return True


def _no_http(handler: Handler, *_about: str) -> bool:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n" * 10)
    handler.close_connection = True
    return True


def _hang_up(handler: Handler, *_about: str) -> bool:
    handler.connection.shutdown(socket.SHUT_RDWR)
    return True


def _elsewhere(handler: Handler, *_about: str) -> bool:
    handler.send_response(302)
    handler.send_header("Location", f"{handler.cache.url}/other")
    handler.send_header("Content-Length", "0")
    handler.end_headers()
    return True


@pytest.mark.parametrize(
    ("fault", "news"),
    [
        (_answers(500), "is not used for now: it answers 500 Internal Server Error"),
        (_answers(503, b"<html>"), "is not used for now: it answers 503 Service Unavailable"),
        (_answers(429), "is not used for now: it answers 429 Too Many Requests"),
        (_answers(401), "is not used: it answers 401 Unauthorized"),
        (_answers(403), "is not used: it answers 403 Forbidden"),
        (_elsewhere, "is not used: it answers 302 Found"),
        (_cut, "is not used for now: its answer was cut off"),
        (_no_http, "is not used for now: it does not answer in HTTP"),
        (_hang_up, "is not used for now: "),
        (_silence, "is not used for now: a request took longer than"),
        (_drip, "is not used for now: a request took longer than"),
        (_drip_headers, "is not used for now: a request took longer than"),
        (_no_length, "is not used for now: its answer has no length"),
        (_endless, "has a wrong result, which is made here: it has more than"),
        (
            _answers(200, b"<html>welcome</html>"),
            "has a wrong result, which is made here: its record",
        ),
    ],
)
def test_whatever_a_server_does_a_build_goes_on(
    machines: Callable[[str], Machine],
    server: CacheServer,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Handler, str, str], bool],
    news: str,
) -> None:
    monkeypatch.setattr(module, "MOST_RECORD", 1 << 20)
    one, other = machines("one"), machines("other")
    tree = one.build()
    if "longer" in news:  # a busy machine must not be cut off where that is not the fault
        monkeypatch.setattr(cache_http, "LEAST", 1.0)
        monkeypatch.setattr(cache_http, "RATE", 1 << 40)
    server.fault = fault
    assert other.build() == tree
    server.fault = None
    assert other.host.ran == one.host.ran
    assert other.told[0].startswith(f"the cache {server.url} {news}")
    assert len(other.told) == 1
    assert "welcome" not in other.told[0]


def test_other_bytes_than_a_digest_says_are_not_used(
    machines: Callable[[str], Machine], server: CacheServer
) -> None:
    one, other = machines("one"), machines("other")
    tree = one.build()
    for path, data in server.entries.items():
        if path.startswith("/cas/") and data:
            server.entries[path] = bytes([data[0] ^ 1]) + data[1:]
    assert other.build() == tree
    assert "has other bytes than its digest says" in other.told[0]
    for path, data in server.entries.items():
        if path.startswith("/cas/"):
            assert hashlib.sha256(data).hexdigest() == path.removeprefix("/cas/")


@pytest.mark.parametrize(
    ("status", "news", "asked"),
    [
        (403, "takes nothing from this machine: it answers 403 Forbidden", 1),
        (400, "takes nothing from this machine: it answers 400 Bad Request", 1),
        (507, "takes nothing for now: it answers 507 Insufficient Storage", 2),
        (413, "", None),
    ],
)
def test_a_server_that_takes_nothing_is_still_read(
    machines: Callable[[str], Machine],
    server: CacheServer,
    status: int,
    news: str,
    asked: int | None,
) -> None:
    one, other = machines("one"), machines("other")
    one.build()
    server.entries.clear()
    server.asked.clear()

    def fault(handler: Handler, method: str, _path: str) -> bool:
        if method == "PUT":
            handler.close_connection = True  # without having read what is sent
            handler.answer(status)
        return method == "PUT"

    server.fault = fault
    other.build()
    assert other.told == ([f"the cache {server.url} {news}"] if news else [])
    assert server.count("GET") == len(other.host.ran)
    assert asked is None or server.count("PUT") == asked


def test_a_stop_ends_a_request_that_gets_no_answer(
    machines: Callable[[str], Machine], server: CacheServer
) -> None:
    one = machines("one")
    server.fault = _silence
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(Cancelled):
        one.cache.take("0" * 64, WaitRules(cancel=stop))
    server.fault = None
    assert one.told == []


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        one = Machine(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}")
        one.build()
        one.store.close()
    (news,) = one.told
    assert "is not used for now: " in news


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    assert made.alone()


def words(project: Project, home: str, cache: str, *more: str) -> list[str]:
    """A sweep of a catalog on a machine of its own."""
    catalog = project.catalog(model("tiny/a"), model("tiny/b", salt="b"))
    return ["sweep", catalog, "--home", home, "--cache", cache, *more]


def outs(project: Project, *commands: list[str], **env: str) -> list[str]:
    """What commands said that go well."""
    ran = project.session(commands, **env)
    assert [one.code for one in ran] == [Exit.OK] * len(ran), ran
    assert not any("Traceback" in one.err for one in ran)
    return [one.out + one.err for one in ran]


BUILT = ": 0 stages built"
"""Ends what a sweep says that has run no stage."""


def test_a_second_machine_runs_no_stage(project: Project, server: CacheServer) -> None:
    folder = (project.folder / "by-url").as_uri()
    more = ("--stamp", "x", "--cache-read-only")
    said = outs(
        project,
        words(project, "one", server.url),
        words(project, "two", server.url),
        words(project, "three", server.url, *more),
        words(project, "four", "shared"),
        words(project, "five", "shared"),
        words(project, "six", folder),
        words(project, "seven", folder),
    )
    assert [BUILT in one for one in said] == [False, True, True, False, True, False, True]


def test_credentials_go_to_the_server_and_nowhere_else(
    project: Project, server: CacheServer
) -> None:
    pair = base64.b64encode(f"mill:{SECRET}".encode()).decode()
    secrets = {"MODELMILL_CACHE_USER": "mill", "MODELMILL_CACHE_PASSWORD": SECRET}
    said = outs(project, words(project, "one", server.url, "-v"), **secrets)
    assert set(server.headers) == {f"Basic {pair}"}
    server.headers.clear()
    server.fault = _answers(401)
    said += outs(project, words(project, "two", server.url), MODELMILL_CACHE_TOKEN=SECRET)
    assert set(server.headers) == {f"Bearer {SECRET}"}
    assert said[1].count(f"the cache {server.url} is not used: it answers 401 Unauthorized") == 1
    files = [path for path in project.folder.rglob("*") if path.is_file()]
    texts = ["".join(said).encode(), *server.entries.values(), *(one.read_bytes() for one in files)]
    assert not any(secret in text for text in texts for secret in (SECRET.encode(), pair.encode()))


def test_credentials_that_cannot_be_sent_end_a_sweep_before_it_begins(project: Project) -> None:
    again = words(project, "one", "http://cache")
    (ran,) = project.session([again], MODELMILL_CACHE_TOKEN=SECRET)
    assert (ran.code, SECRET in ran.out + ran.err) == (Exit.USAGE, False)
    assert "the cache http://cache would get credentials in plain text" in ran.err
    assert not (project.folder / "one").exists()


def test_a_killed_sweep_leaves_no_half_of_anything(project: Project, server: CacheServer) -> None:
    outs(project, words(project, "one", server.url))
    held = threading.Event()

    def hold(handler: Handler, method: str, path: str) -> bool:
        if method != "GET" or not path.startswith("/cas/"):
            return False
        found = handler.cache.entries[path]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(found)))
        handler.end_headers()
        handler.wfile.write(found[:1])
        held.set()
        while handler.cache.fault is hold:
            threading.Event().wait(0.05)
        return True

    server.fault = hold
    again = words(project, "two", server.url)
    with project.start(*again, plain=True) as running:
        assert eventually(held.is_set, 60)
        running.popen.kill()
        running.end()
    server.fault = None
    (said,) = outs(project, again)
    assert BUILT in said
    assert not list((project.folder / "two" / "store" / "tmp").glob("*/cached*"))
