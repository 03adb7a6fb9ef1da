"""Whether somebody leads a sweep, by what a Prefect server says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Self, cast
from uuid import uuid4

import httpx
import pytest
from prefect.states import Completed, Crashed, Pending, Running, Scheduled

from flows.fleet import parent_runs as module
from flows.fleet.failed_starts import PENDING_LIMIT
from flows.fleet.parent_runs import ParentRuns, earlier_night

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Server:
    """The parents of a sweep; the first is the one that was submitted."""

    def __init__(self, *states: Any) -> None:
        self.runs = [
            SimpleNamespace(id=uuid4(), state=state, expected_start_time=NOON) for state in states
        ]
        self.away = False

    def __call__(self, *, sync_client: bool) -> Server:
        return self

    def __enter__(self) -> Self:
        if self.away:
            raise httpx.ConnectError("refused")
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is kept."""

    def read_flow_runs(self, **_filters: Any) -> list[Any]:
        return [run for run in self.runs if not run.state.is_final()]

    def read_flow_run(self, run: object) -> Any:
        return next(one for one in self.runs if one.id == run)

    def set_flow_run_state(self, run: object, state: Any, *, force: bool) -> None:
        self.read_flow_run(run).state = state


def submitted(monkeypatch: pytest.MonkeyPatch, server: Server) -> ParentRuns:
    monkeypatch.setattr(module, "get_client", server)
    return ParentRuns(server.runs[0].id, 7)


@pytest.mark.parametrize(
    ("states", "gone"),
    [
        ([Running()], False),
        ([Scheduled()], False),
        ([Completed()], True),
        ([Completed(), Running()], False),
        ([Crashed(), Completed()], True),
    ],
)
def test_a_sweep_is_led_while_any_parent_is_or_is_to_come(
    states: list[Any], gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submitted(monkeypatch, Server(*states)).ended() is gone


def test_a_parent_that_nobody_will_begin_is_given_to_another_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    server = Server(Completed(), Pending())
    watched = submitted(monkeypatch, server)
    assert not watched.ended()
    now += PENDING_LIMIT + 1
    assert not watched.ended()
    state = server.runs[1].state
    assert state.is_scheduled()
    assert state.state_details.scheduled_time == NOON
    server.runs[1].state = Pending()  # taken again: it gets as long as the first time
    assert not watched.ended()
    assert server.runs[1].state.is_pending()


def test_a_server_that_is_away_says_nothing_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(Completed())
    server.away = True
    assert not submitted(monkeypatch, server).ended()


@pytest.mark.parametrize(
    ("later", "same", "left_out"),
    [
        (timedelta(days=-1), True, True),
        (timedelta(days=1), True, False),  # the scheduler has made it already
        (timedelta(minutes=1), False, True),  # it moved to another worker while we began
    ],
)
def test_a_night_is_left_out_for_an_earlier_one_alone(
    later: timedelta, same: bool, left_out: bool
) -> None:
    server, ours = Server(Scheduled()), uuid4()
    run = SimpleNamespace(
        id=uuid4(), tags=["nightly:mill"], deployment_id=ours, expected_start_time=NOON
    )
    (other,) = server.runs
    other.name, other.expected_start_time = "other", NOON + later
    other.deployment_id = ours if same else uuid4()
    found = earlier_night(cast("Any", server), cast("Any", run))
    assert found == ("other" if left_out else None)
