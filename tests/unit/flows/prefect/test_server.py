from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import modelmill
from flows.prefect import server
from flows.prefect.server import start_server
from machine.children import module_command

SECRETS = {
    "AZURE_DEVOPS_EXT_PAT": "feed-token",
    "HF_TOKEN": "hf_hub-token",
    "MODELMILL_STATE": "postgresql://mill:pw@db/mill",
    "MODELMILL_SIGN_PASSWORD": "unlock",
}
NEEDED = {
    "PATH": "/bin",
    "HTTPS_PROXY": "http://me:pw@proxy:3128",
    "PREFECT_SERVER_API_AUTH_STRING": "admin:pw",
    "PREFECT_API_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:////tmp/x.db",
}


class Popen:
    """Takes the place of the process."""

    environment: dict[str, str]
    stdin = None

    def __init__(self, _command: list[str], env: dict[str, str], **_others: Any) -> None:
        type(self).environment = env

    def wait(self, _limit: float) -> int:
        return 0


def test_the_server_gets_prefects_settings_and_no_other_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(server, "free_port", lambda: 4200)
    start_server(tmp_path, {**SECRETS, **NEEDED, "MODELMILL_FEED": "azure:https://x"}).stop()
    given = Popen.environment
    assert NEEDED.items() <= given.items()
    assert not SECRETS.keys() & given.keys()
    assert not [name for name in given if name.startswith("MODELMILL_")]
    assert not set(SECRETS.values()) & set(given.values())


def test_a_child_is_started_by_the_path_of_our_entry_point() -> None:
    python, isolated, main, *rest = module_command("flows.prefect.server_process", "--port", "1")
    assert [python, isolated] == [sys.executable, "-P"]
    assert Path(main).samefile(Path(modelmill.__file__).with_name("__main__.py"))
    assert rest == ["-m", "flows.prefect.server_process", "--port", "1"]
