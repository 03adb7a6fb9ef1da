"""A PostgreSQL server of one's own, on loopback, for the tests that need a real one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from tests.machine.timing import patient
from tests.services.installing import lacking

PASSWORD = "s3cr3t"


@contextmanager
def postgres() -> Iterator[Server]:
    """From an empty folder to a stopped server."""
    # Not below pytest's own folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp(prefix="mill-pg-"))
    try:
        made = Server(folder)
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        if not candidates:
            lacking("PostgreSQL")
        found = str(candidates[-1])
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A private server on loopback; PostgreSQL refuses to run as root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._names = count()
        self.user: dict[str, Any] = {}
        if sys.platform != "win32" and os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            self.user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        password = folder / "password"
        password.write_text(PASSWORD)
        data = str(folder / "data")
        options = ["--no-sync", "-U", "mill", "-A", "scram-sha-256", f"--pwfile={password}"]
        self.run("initdb", "-D", data, *options, "-E", "UTF8", "--locale=C")
        self.start()

    def run(self, name: str, *arguments: str) -> None:
        with (self.folder / "tools.log").open("ab") as log:
            subprocess.run(
                [_binary(name), *arguments],
                check=True,
                timeout=patient(60),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self.user,
            )

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        log = str(self.folder / "log")
        self.run("pg_ctl", "-w", "-D", str(self.folder / "data"), "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def url(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://mill:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def new_database(self, template: str = "template1") -> str:
        """The URL of a database that nobody else uses."""
        name = f"mill_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)
