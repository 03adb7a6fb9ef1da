"""The tools that read the files of deploy/, where they are installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.machine.timing import patient
from tests.services.installing import program
from tests.services.postgres import PASSWORD, Server
from tests.sweeps.command import ROOT


def run(
    *arguments: str | Path, env: Mapping[str, str] | None = None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(one) for one in arguments],
        capture_output=True,
        text=True,
        timeout=patient(240),
        env=env,
        input=text,
        cwd=ROOT,
    )


def psql(server: Server, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "mill"}
    login |= {"PGPASSWORD": PASSWORD, "PGDATABASE": "postgres", "PATH": os.environ["PATH"]}
    return run(program("psql"), "--no-psqlrc", *arguments, env={**login, **env})
