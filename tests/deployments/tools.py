"""The tools that read the files of deploy/, where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.services.postgres import PASSWORD, Server
from tests.sweeps.command import ROOT


def run(
    *arguments: str | Path, env: Mapping[str, str] | None = None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(one) for one in arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=env,
        input=text,
        cwd=ROOT,
    )


def needs(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not on this machine")
    return found


def psql(server: Server, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "mill"}
    login |= {"PGPASSWORD": PASSWORD, "PGDATABASE": "postgres", "PATH": os.environ["PATH"]}
    return run(needs("psql"), "--no-psqlrc", *arguments, env={**login, **env})
