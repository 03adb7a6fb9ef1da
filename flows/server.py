"""The API server that a local sweep runs against: its own, or the one in PREFECT_API_URL.

Ours is a child process started before Prefect is imported (both take seconds, so they overlap).
Prefect's own temporary server is not used: it is killed at exit and loses most of the history.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from flows.children import command
from matrix.credentials import without_credentials
from matrix.errors import Exit, MillError

START_LIMIT = 90.0
_FLUSHES = {
    # Whole seconds: the recorder cuts what is behind the point, and would flush without a pause.
    "TASK_RUN_RECORDER": "1",
    "EVENT_PERSISTER": "0.5",
}
_BATCHES = {
    f"PREFECT_SERVER_SERVICES_{service}_{key}": value
    for service, flush in _FLUSHES.items()
    for key, value in (("BATCH_SIZE", "200"), ("READ_BATCH_SIZE", "200"), ("FLUSH_INTERVAL", flush))
}
_ENVIRONMENT = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # One event at a time, the default, takes the recorder 15 ms a task run.
    **_BATCHES,
}


class ServerFailed(MillError):
    """The embedded server did not come up."""

    exit_code = Exit.UNUSABLE


@dataclass(slots=True)
class Server:
    """A server to talk to; `stop` does nothing to one that is not ours."""

    url: str
    log: Path | None = None
    _process: subprocess.Popen[bytes] | None = None
    _lock: FileLock | None = field(default=None, repr=False)

    @property
    def own(self) -> bool:
        """Whether we started it."""
        return self._process is not None

    def wait(self, cancel: threading.Event) -> None:
        """Until it answers or `cancel`; a dead or silent server is an error that names its log."""
        if self._process is None:
            return
        deadline = time.monotonic() + START_LIMIT
        try:
            while not cancel.is_set() and not _healthy(self.url):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise ServerFailed(
                        "the embedded Prefect server did not start", hint=f"its log: {self.log}"
                    )
                cancel.wait(0.05)
        finally:
            self._release()
        if cancel.is_set():
            self.stop(0.0)  # one that is still importing would not listen for seconds

    def stop(self, limit: float = 5.0) -> None:
        """Close its input and wait; kill what does not end in time."""
        self._release()
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def start_server(home: Path, environ: Mapping[str, str]) -> Server:
    """Begin to start a server, or find the one that the environment names; `wait` before use."""
    if environ.get("PREFECT_API_URL"):
        return Server(environ["PREFECT_API_URL"])
    prefect_home = Path(environ.get("PREFECT_HOME") or home / "prefect").absolute()
    prefect_home.mkdir(parents=True, exist_ok=True)
    # Three servers that migrate one fresh database at once trip over each other.
    lock = FileLock(prefect_home / "start.lock", thread_local=False)
    lock.acquire()
    try:
        return _spawn(prefect_home, environ, lock)
    except BaseException:
        lock.release()
        raise


def _spawn(prefect_home: Path, environ: Mapping[str, str], lock: FileLock) -> Server:
    port = _free_port()
    log = prefect_home / "server.log"
    env = {**_server_environment(environ), **_ENVIRONMENT, "PREFECT_HOME": str(prefect_home)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command("flows.server_process", str(port)),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=env,
            cwd=prefect_home,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    return Server(f"http://127.0.0.1:{port}/api", log, process, lock)


def _server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Prefect's own settings, its database's password included; no credential of anybody else."""
    passed = without_credentials(environ, lambda name: name.startswith("PREFECT_"))
    return {name: text for name, text in passed.items() if not name.startswith("MODELMILL_")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:  # noqa: S310 - loopback
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
