"""Whether calibration data comes from the hub is decided once and said in the key."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pytest

from workers.winml_engine import installed


class Connection:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        pass


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*installed.OFFLINE, "HF_ENDPOINT", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
        monkeypatch.delenv(name.upper(), raising=False)
    installed.calibration.cache_clear()
    yield
    installed.calibration.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Addresses that were connected to; the connection is made."""
    found: list[Any] = []

    def connect(address: tuple[str, int], timeout: float) -> Connection:
        found.append((address, timeout))
        return Connection()

    monkeypatch.setattr(socket, "create_connection", connect)
    return found


def test_a_hub_that_answers_is_used(asked: list[Any]) -> None:
    assert installed.calibration() == installed.HUB
    assert installed.calibration() == installed.HUB
    assert asked == [(("huggingface.co", 443), installed.CONNECT_TIMEOUT)]


@pytest.mark.parametrize("name", installed.OFFLINE)
def test_a_user_who_is_offline_on_purpose_is_not_contradicted(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "yes")
    assert installed.calibration() == installed.LOCAL
    assert asked == []


def test_without_a_network_the_libraries_are_told_not_to_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert installed.calibration() == installed.LOCAL
    assert all(os.environ[name] == "1" for name in installed.OFFLINE)


def test_a_mirror_is_asked_instead(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.test:8080")
    assert installed.reachable()
    assert asked[0][0] == ("mirror.test", 8080)


@pytest.mark.parametrize("proxy", ["http://proxy.test:3128", "proxy.test:3128"])
def test_a_proxy_is_asked_instead(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    assert installed.reachable()
    assert asked[0][0] == ("proxy.test", 3128)
