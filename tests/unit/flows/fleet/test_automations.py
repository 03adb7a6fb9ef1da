"""Automations that a deployment creates, or finds from before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.fleet.automations import crash_lost_runs, crash_pending_runs


class Server:
    """The automations of a Prefect server by id."""

    def __init__(self, *names: str) -> None:
        self.names = dict(enumerate(names))

    def read_automations_by_name(self, name: str) -> list[Any]:
        return [SimpleNamespace(id=key) for key, one in self.names.items() if one == name]

    def create_automation(self, wanted: Any) -> None:
        self.names[len(self.names)] = wanted.name

    def update_automation(self, key: int, wanted: Any) -> None:
        self.names[key] = wanted.name


@pytest.mark.parametrize(
    "before",
    [(), ("modelmill-zombie", "modelmill-stuck"), ("modelmill-lost", "modelmill-pending")],
)
def test_each_automation_is_there_once_whatever_its_name_was(before: tuple[str, ...]) -> None:
    server = Server("somebody's", *before)
    client = cast("SyncPrefectClient", server)
    made = [crash_lost_runs(client), crash_pending_runs(client)]
    assert made == ["modelmill-lost", "modelmill-pending"]
    assert list(server.names.values()) == ["somebody's", *made]
