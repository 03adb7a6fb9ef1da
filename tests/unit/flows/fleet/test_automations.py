"""Automations of earlier versions go when a fleet is deployed again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from prefect.client.orchestration import SyncPrefectClient

from flows.fleet.deployments import remove_former


class Server:
    """The automations of a Prefect server by id."""

    def __init__(self, *names: str) -> None:
        self.names = dict(enumerate(names))

    def read_automations_by_name(self, name: str) -> list[Any]:
        return [SimpleNamespace(id=key) for key, one in self.names.items() if one == name]

    def delete_automation(self, key: int) -> None:
        del self.names[key]


def test_what_took_silent_runs_for_dead_goes_and_nothing_else() -> None:
    server = Server("somebody's", "modelmill-zombie", "modelmill-lost", "modelmill-failed")
    remove_former(cast("SyncPrefectClient", server))
    assert list(server.names.values()) == ["somebody's", "modelmill-failed"]
