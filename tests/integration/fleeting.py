"""A fleet on loopback: PostgreSQL, a Prefect server, workers as processes; and how to hurt them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from flows.server import _ENVIRONMENT, _free_port, _healthy
from state.ledger import State, open_state
from state.records import Event
from tests.integration.sweeping import MARK, Mill, Running, eventually
from tests.integration.test_state_postgresql import Server

POOL = "mill"


@dataclass
class PrefectServer:
    """A server that can be stopped and started again where it was."""

    home: Path
    port: int = field(default_factory=_free_port)
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def start(self) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT_")}
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.server_process", str(self.port)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**kept, **_ENVIRONMENT, "PREFECT_HOME": str(self.home), **self.env},
            )
        assert eventually(lambda: _healthy(self.url), 60.0)

    def stop(self) -> None:
        assert self.process
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


class FleetMill(Mill):
    """A folder to sweep in whose state and server are those of a fleet."""

    url = ""

    @cached_property
    def machines(self) -> Mill:
        """What the workers are started from."""
        return Mill(self.folder, self.env)

    def state(self) -> State:
        return open_state(self.url)

    @contextmanager
    def worker(self, name: str, *arguments: str, **env: str) -> Iterator[Running]:
        """A machine of its own: another home, the same feed."""
        options = ("--pool", POOL, "--engines", "fake,nothing", "--home", f"home-{name}")
        # Another mark: the end of a command of ours must not end the workers.
        with self.machines.start("worker", *options, *arguments, plain=False, **env) as running:
            running.until("slots in")
            yield running

    def fleet(self, *arguments: str) -> tuple[str, ...]:
        """A sweep on the fleet as arguments."""
        return (*arguments, "--fleet", "--pool", POOL)

    def events(self, stamp: str) -> list[Event]:
        sweep = self.sweep(stamp).id
        with self.state() as state:
            return state.events(sweep, limit=100_000)

    def holders(self, stamp: str) -> list[Any]:
        with self.state() as state:
            info = state.find_sweep(stamp)
            return state.leases(info.id) if info else []

    def named(self, part: str) -> list[psutil.Process]:
        """Our processes whose command line has this."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                if part in " ".join(process.cmdline()):
                    found.append(process)
        return found


def fleet_mill(folder: Path, server: PrefectServer, url: str, **env: str) -> FleetMill:
    folder.mkdir()
    mill = FleetMill(folder)
    mill.url = url
    mill.env = {
        "PREFECT_API_URL": server.url,
        "PREFECT_HOME": str(folder / "prefect-client"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "MODELMILL_STATE": url,
        "MODELMILL_FEED": str(mill.feed_folder),
        "MODELMILL_JOBS": "1",
        "MODELMILL_HEARTBEAT": "4",
        "OMP_NUM_THREADS": "1",
        **env,
    }
    return mill


@contextmanager
def postgres() -> Iterator[Server]:
    """A database server of one's own."""
    folder = Path(tempfile.mkdtemp(prefix="mill-fleet-pg-"))
    try:
        made = Server(folder)
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def prefect_server(template: Path, home: Path, **env: str) -> Iterator[PrefectServer]:
    """A Prefect server of one's own, from a migrated database."""
    server = PrefectServer(copied(template, home), env=env)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def copied(template: Path, home: Path) -> Path:
    shutil.copytree(template, home)
    return home


__all__ = ["MARK", "POOL", "FleetMill", "PrefectServer", "copied", "fleet_mill"]
