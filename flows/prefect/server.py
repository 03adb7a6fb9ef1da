"""The server that shows a local sweep: the user's by PREFECT_API_URL, or one that the sweep starts.

Works around Prefect (test_prefects_temporary_server_outlives_a_killed_owner): its own temporary
server would be left behind, and importing it costs the sweep more than a second of processor time.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from machine.children import module_command, start
from machine.disk import free, is_full, reason, says_full
from machine.locks import take
from machine.waits import Cancelled, WaitedTooLong, WaitRules
from matrix.credentials import without_credentials
from matrix.errors import MillError

START_LIMIT = 300.0
"""Seconds; nothing but the display waits for it, and a busy machine takes minutes."""

TOO_LATE = "the sweep ended before the embedded Prefect server had started"
_LEAST_SPACE = 1 << 20
_TAIL = 64_000
_FLUSHES = {
    # Works around Prefect (test_the_recorder_cuts_fractions_of_a_second): 0.5 would mean no pause.
    "TASK_RUN_RECORDER": "1",
    "EVENT_PERSISTER": "0.5",
}
_BATCHES = {
    f"PREFECT_SERVER_SERVICES_{service}_{key}": value
    for service, flush in _FLUSHES.items()
    for key, value in (("BATCH_SIZE", "200"), ("READ_BATCH_SIZE", "200"), ("FLUSH_INTERVAL", flush))
}
ENVIRONMENT = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # Works around Prefect (test_events_are_recorded_one_by_one): that takes 15 ms a task run.
    **_BATCHES,
}


@dataclass(slots=True)
class Server:
    """A server that this process starts and stops."""

    url: str
    home: Path
    _process: subprocess.Popen[bytes]
    _lock: FileLock = field(repr=False)

    @property
    def log(self) -> Path:
        """What it has written since it was started."""
        return self.home / "server.log"

    @property
    def lives(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def wait(self, cancel: threading.Event) -> None:
        """Wait until it answers or `cancel` is set; a server that ends or stays silent fails."""
        deadline = time.monotonic() + START_LIMIT
        try:
            while not cancel.is_set() and not healthy(self.url):
                if not self.lives or time.monotonic() > deadline:
                    why = self.trouble() or f"the embedded Prefect server did not start: {self.log}"
                    self.stop(0.0)
                    raise MillError(why)
                cancel.wait(0.05)
        finally:
            self._lock.release()

    def tell(self, settings: Mapping[str, str]) -> None:
        """Say where the reports are read from."""
        with suppress(OSError):  # it has ended, and `wait` says so
            assert self._process.stdin
            self._process.stdin.write(f"{json.dumps(settings)}\n".encode())
            self._process.stdin.flush()

    def trouble(self) -> str:
        """What keeps it from working, as far as can be seen from outside; empty: nothing."""
        if _is_full(self.home) or _says_full(self.log):
            return f"the disk of {self.home} is full"
        return "" if self.lives else f"the embedded Prefect server ended: {self.log}"

    def stop(self, limit: float = 5.0) -> None:
        """Close its input and wait, then kill it: it has written everything that it received."""
        self._lock.release()
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_server(
    home: Path,
    environ: Mapping[str, str],
    cancel: threading.Event | None = None,
    interface: int | None = None,
    state: Path | str = "",
) -> Server:
    """Start a server; `wait` for it before use. `interface`: the port at which it has Prefect's
    interface, and reports of the sweeps in `state`; None: it listens anywhere and has none."""
    prefect_home = prefect_home_of(home, environ)
    try:
        prefect_home.mkdir(parents=True, exist_ok=True)
        if _is_full(prefect_home):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lock = _wait_for_turn(prefect_home, cancel or threading.Event())
        try:
            server = _spawn(prefect_home, environ, lock, interface)
            if interface is not None:
                server.tell({"home": str(home), "state": str(state)})
            return server
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        if is_full(error):
            raise MillError(f"the disk of {prefect_home} is full") from error
        raise MillError(f"{prefect_home} cannot be written: {reason(error)}") from error


def prefect_home_of(home: Path, environ: Mapping[str, str]) -> Path:
    """The PREFECT_HOME of a local sweep."""
    return Path(environ.get("PREFECT_HOME") or home / "prefect").absolute()


def _wait_for_turn(prefect_home: Path, cancel: threading.Event) -> FileLock:
    """Start one server at a time.

    Works around Prefect (test_servers_that_migrate_one_new_database_at_once_fail).
    """
    try:
        return take(prefect_home / "start.lock", WaitRules(START_LIMIT, cancel))
    except Cancelled as error:
        raise MillError(TOO_LATE) from error
    except WaitedTooLong as error:
        raise MillError(error.message, hint=error.hint) from error


def _spawn(
    prefect_home: Path, environ: Mapping[str, str], lock: FileLock, interface: int | None
) -> Server:
    port = interface or free_port()
    arguments = [str(port), *(["reports"] if interface is not None else [])]
    env = {**_server_environment(environ), **ENVIRONMENT, "PREFECT_HOME": str(prefect_home)}
    if interface is not None:
        env |= {
            "PREFECT_UI_ENABLED": "1",
            "PREFECT__SERVER_EPHEMERAL": "",  # one of that kind has no interface
            "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_UI_STATIC_DIRECTORY": str(prefect_home / "interface"),
            "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        }
    with (prefect_home / "server.log").open("wb") as output:
        process = start(
            module_command("flows.prefect.server_process", *arguments),
            stdout=output,
            stderr=output,
            env=env,
            cwd=prefect_home,
        )
    return Server(f"http://127.0.0.1:{port}/api", prefect_home, process, lock)


def _is_full(home: Path) -> bool:
    return free(home) < _LEAST_SPACE


def _says_full(log: Path) -> bool:
    """Whether the server complains of a full disk: a quota does not show in the free space."""
    try:
        with log.open("rb") as lines:
            lines.seek(0, os.SEEK_END)
            lines.seek(max(0, lines.tell() - _TAIL))
            return says_full(lines.read().decode(errors="replace"))
    except OSError:
        return False


def _server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Prefect's own settings, its database's password included, and no other credential."""
    passed = without_credentials(environ, lambda name: name.startswith("PREFECT_"))
    return {name: text for name, text in passed.items() if not name.startswith("MODELMILL_")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    """Whether a server could not listen there."""
    with socket.socket() as probe:
        if os.name == "posix":  # as servers do: a port that was just left is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return True
    return False


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:  # noqa: S310 - loopback
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


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
            raise MillError(TOO_LATE)
        return own.url

    def problem(self, error: Exception | None = None) -> str:
        """What is wrong with it, in a few words; without an `error`: it has not answered yet."""
        if isinstance(error, MillError):
            return str(error)
        if self._own is not None and (why := self._own.trouble()):
            return why
        name = "the embedded Prefect server"
        if self.given:  # without its password
            name = f"the Prefect server {urlsplit(self.given).hostname}"
        return f"{name} {_symptom(error)}"

    def stop(self, limit: float) -> None:
        """End our own server."""
        own, self._own = self._own, None
        if own is not None:
            own.stop(limit)


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
