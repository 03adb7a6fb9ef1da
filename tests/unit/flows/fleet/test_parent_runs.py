"""Whether somebody leads a sweep, by what a Prefect server says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Self, cast
from uuid import uuid4

import httpx
import pytest
from prefect.states import Completed, Crashed, Failed, Pending, Running, Scheduled

from flows.fleet import parent_runs as module
from flows.fleet.failed_starts import PendingRuns
from flows.fleet.parent_runs import ParentRuns, earlier_night, status_lines
from flows.fleet.run import FleetRun
from tests.sweeps.in_memory import make_plan, small_model

LIMIT = 90.0
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Server:
    """The parents of a sweep; the first is the one that was submitted."""

    def __init__(self, *states: Any) -> None:
        self.runs = [
            SimpleNamespace(id=uuid4(), state=state, expected_start_time=NOON, tags=[])
            for state in states
        ]
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

    def read_flow_runs(self, **filters: Any) -> list[Any]:
        if filters.get("limit") == 1:
            return self.runs[-1:]
        return [run for run in self.runs if not run.state.is_final()]

    def read_flow_run(self, run: object) -> Any:
        return next(one for one in self.runs if one.id == run)

    def run_deployment(self, _name: str, *, idempotency_key: str, **_more: Any) -> Any:
        if idempotency_key not in self.keys:
            self.keys.append(idempotency_key)
            self.runs.append(
                SimpleNamespace(id=uuid4(), state=Scheduled(), expected_start_time=NOON, tags=[])
            )
        return self.runs[-1]


def submitted(monkeypatch: pytest.MonkeyPatch, server: Server) -> ParentRuns:
    monkeypatch.setattr(module, "get_client", server)
    monkeypatch.setattr(module, "run_deployment", server.run_deployment)
    plan = make_plan(small_model("a"))
    run = FleetRun(7, plan, {}, "dir:/feed", id=3)
    return ParentRuns("mill", server.runs[0].id, run, PendingRuns(LIMIT))


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


def test_the_reason_of_a_parent_that_failed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(Failed(message="the key none.pem cannot be read"))
    watched = submitted(monkeypatch, server)
    assert watched.ended()
    assert watched.said == "the key none.pem cannot be read"


def test_another_parent_is_asked_for_when_none_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has not begun is left alone: its machine may only be busy."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    server = Server(Pending())
    watched = submitted(monkeypatch, server)
    assert not watched.ended()
    now += LIMIT + 1
    assert not watched.ended()
    assert not watched.ended()
    assert server.keys == ["mill-7-3-1"]
    assert [run.state.is_pending() for run in server.runs] == [True, False]
    server.runs[1].state = Pending()
    now += LIMIT + 1
    assert not watched.ended()
    now += LIMIT + 1
    assert not watched.ended()
    assert server.keys == ["mill-7-3-1", "mill-7-3-2"]
    for run in server.runs:
        run.state = Completed()
    assert watched.ended()


def test_a_server_that_is_away_says_nothing_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(Completed())
    server.away = True
    assert not submitted(monkeypatch, server).ended()


@pytest.mark.parametrize(
    ("online", "hosts", "told"),
    [
        (["b", "a"], [], "workers alive in mill: a, b"),
        ([], [], "workers alive in mill: none, start modelmill worker"),
        ([], ["box2", "box1"], "no worker of mill asks for work, but slots work on box1, box2"),
    ],
)
def test_who_holds_a_lease_is_alive(
    online: list[str], hosts: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(Running())
    server.runs[0].parameters = {"pool": "mill"}
    workers = [SimpleNamespace(name=name) for name in online]
    monkeypatch.setattr(
        Server, "read_workers_for_work_pool", lambda *_a, **_k: workers, raising=False
    )
    monkeypatch.setattr(module, "get_client", server)
    monkeypatch.setenv("PREFECT_API_URL", "http://server")
    assert status_lines(7, "s", hosts) == [told]


DUE = NOON
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


class Nights(Server):
    """The other parents of a nightly sweep, at a moment of our choice."""

    def __init__(self, now: datetime, due: datetime, ends: datetime, deployment: object) -> None:
        began = due <= now
        state: Any = Completed() if ends <= now else Running() if began else Scheduled()
        super().__init__(state)
        (other,) = self.runs
        other.name, other.deployment_id, other.expected_start_time = "other", deployment, due
        other.start_time, other.end_time = due if began else None, ends if ends <= now else None

    def read_flow_runs(self, **filters: Any) -> list[Any]:
        ended = filters["flow_run_filter"].end_time
        if ended is None:
            return super().read_flow_runs()
        after = [run for run in self.runs if run.end_time and run.end_time >= ended.after_]
        return [run for run in after if run.state.is_final()]


@pytest.mark.parametrize(
    ("due", "ends", "begun", "same", "left_out"),
    [
        (-DAY, MINUTE, timedelta(), True, True),
        (-DAY, -MINUTE, timedelta(), True, False),  # it ended between our start and our time
        (-DAY, 9 * MINUTE, 10 * MINUTE, True, True),  # we waited for its worker
        (DAY, DAY + MINUTE, timedelta(), True, False),  # the scheduler has made it already
        (MINUTE, DAY, 2 * MINUTE, False, True),  # it moved to another worker while we began
    ],
)
def test_a_night_is_left_out_for_one_that_still_ran_when_it_was_due(
    due: timedelta, ends: timedelta, begun: timedelta, same: bool, left_out: bool
) -> None:
    ours = uuid4()
    run = SimpleNamespace(
        id=uuid4(), tags=["nightly:mill"], deployment_id=ours, expected_start_time=DUE
    )
    deployment = ours if same else uuid4()
    server = Nights(DUE + begun, DUE + due, DUE + ends, deployment)
    found = earlier_night(cast("Any", server), cast("Any", run))
    assert found == ("other" if left_out else None)
