"""Asking a Prefect server for another parent of a sweep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import httpx
import pytest
from prefect.states import Cancelled, Cancelling, Completed, Crashed, Failed, Pending, Running

from flows.fleet import lead as module
from flows.fleet.lead import another_parent, refused
from flows.fleet.run import FleetRun
from tests.sweeps.in_memory import make_plan, small_model


class Server:
    """The parents of a sweep, the last one last, and the requests for others."""

    def __init__(self, *states: Any) -> None:
        self.states = states
        self.keys: list[str] = []
        self.away = False

    def __call__(self, *, sync_client: bool) -> Server:
        return self

    def __enter__(self) -> Self:
        if self.away:
            raise httpx.ConnectError("refused")
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is kept."""

    def read_flow_runs(self, *, limit: int, **_filters: Any) -> list[Any]:
        return [SimpleNamespace(state=state) for state in self.states[-limit:]]

    def run_deployment(self, _name: str, *, idempotency_key: str, **_more: Any) -> None:
        self.keys.append(idempotency_key)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> FleetRun:
    return FleetRun(7, make_plan(small_model("a")), {}, "dir:/feed", id=3)


def use(monkeypatch: pytest.MonkeyPatch, server: Server) -> Server:
    monkeypatch.setattr(module, "get_client", server)
    monkeypatch.setattr(module, "run_deployment", server.run_deployment)
    return server


@pytest.mark.parametrize("state", [Running(), Pending(), Crashed(message="no heartbeat")])
def test_another_one_is_asked_for_whatever_prefect_believes_of_the_last(
    state: Any, run: FleetRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = use(monkeypatch, Server(Completed(), state))
    assert another_parent("mill", run, "12-1")
    assert server.keys == ["mill-7-3-12-1"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (Failed(message="the key none.pem cannot be read"), "the key none.pem cannot be read"),
        (Cancelled(), "cancelled in Prefect"),
        (Cancelling(), "cancelled in Prefect"),
    ],
)
def test_what_failed_or_was_cancelled_is_not_begun_again(
    state: Any, why: str, run: FleetRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = use(monkeypatch, Server(Completed(), state))
    assert refused(7) == why
    assert another_parent("mill", run, "12-1")
    assert server.keys == []


def test_a_server_that_is_away_has_to_be_asked_again(
    run: FleetRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = use(monkeypatch, Server(Running()))
    server.away = True
    assert not another_parent("mill", run, "12-1")
