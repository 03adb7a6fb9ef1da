"""Unit tests reach neither the network nor other processes: what needs them is integration."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pytest_socket import disable_socket, enable_socket, socket_allow_hosts

platform.uname()  # on Windows it starts `ver`, once for a process


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_args: object, **_more: object) -> None:
        raise AssertionError("a unit test starts no process: it belongs into tests/integration")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    if sys.platform == "win32":
        socket_allow_hosts(["127.0.0.1"])  # its socket pairs are made of loopback connections
    else:
        disable_socket(allow_unix_socket=True)
    yield
    enable_socket()
