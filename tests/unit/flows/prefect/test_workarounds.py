"""What Prefect lacks, as far as that can be seen without a server; `test_prefect_limits.py` has the
rest. A test that fails here says that Prefect does better now, and code may go."""

from __future__ import annotations

import asyncio
import inspect
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.flows import Flow
from prefect.server.services import task_run_recorder
from prefect.server.services.base import Service
from prefect.server.services.perpetual_services import get_perpetual_services
from prefect.settings import get_current_settings
from prefect.workers.base import BaseWorker

ROOT = Path(__file__).parents[4]
MARK = re.compile(r"Works around Prefect\s+\((test_\w+)\)|\((test_the_client_makes\w+)\)")


def test_every_piece_that_works_around_prefect_names_a_test_that_exists() -> None:
    named = {
        name
        for path in (ROOT / "flows").rglob("*.py")
        for found in MARK.findall(re.sub(r"\n\s*#?\s*", " ", path.read_text("utf-8")))
        for name in found
        if name
    }
    here = Path(__file__).read_text("utf-8")
    there = (ROOT / "tests" / "integration" / "test_prefect_limits.py").read_text("utf-8")
    tests = set(re.findall(r"^def (test_\w+)", here + there, re.MULTILINE))
    assert named == tests - {
        "test_every_piece_that_works_around_prefect_names_a_test_that_exists",
        "test_a_killed_run_stays_running_on_the_server",
    }


def test_no_service_of_the_server_ends_lost_runs() -> None:
    """None of these ends a run whose process is gone or that stays pending; a new one may."""
    known = {
        "ensure_cancelling_timeout_checks",
        "evaluate_proactive_triggers_periodic",
        "monitor_cancelled_flow_runs",
        "monitor_expired_leases",
        "monitor_expired_pauses",
        "monitor_late_runs",
        "monitor_subflow_runs",
        "monitor_worker_health",
        "reconcile_cleanup_delivery",
        "schedule_deployments",
        "schedule_event_vacuum_tasks",
        "schedule_orphan_vacuum_tasks",
        "schedule_recent_deployments",
        "schedule_vacuum_tasks",
        "send_telemetry_heartbeat",
    }
    assert {one.function.__name__ for one in get_perpetual_services()} <= known
    assert {one.__name__ for one in Service.all_services()} <= {
        "Actions",
        "Distributor",
        "EventLogger",
        "EventPersister",
        "LogDistributor",
        "ReactiveTriggers",
        "TaskRunRecorder",
    }


def test_a_worker_asks_for_what_is_due_by_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = datetime.now(UTC) - timedelta(hours=1)
    monkeypatch.setattr("prefect.types._datetime.now", lambda _zone: behind)
    asked: list[datetime] = []

    class Client:
        async def get_scheduled_flow_runs_for_work_pool(self, **wanted: Any) -> list[object]:
            asked.append(wanted["scheduled_before"])
            return []

    worker = SimpleNamespace(
        _prefetch_seconds=10,
        _logger=SimpleNamespace(debug=lambda _text: None),
        _work_pool_name="pool",
        _work_queues=set(),
        client=Client(),
    )
    asyncio.run(BaseWorker._get_scheduled_flow_runs(cast("Any", worker)))
    assert asked == [behind + timedelta(seconds=10)]


def test_the_recorder_cuts_fractions_of_a_second() -> None:
    assert "flush_every=int(" in inspect.getsource(task_run_recorder)


def test_events_are_recorded_one_by_one() -> None:
    assert get_current_settings().server.services.task_run_recorder.batch_size == 1


def test_the_client_makes_runs_of_flows_and_tasks_only() -> None:
    parameters = inspect.signature(SyncPrefectClient.create_flow_run).parameters
    assert Flow.__name__ in str(parameters["flow"].annotation)


def test_no_short_lived_server_removes_old_runs() -> None:
    names = {one.function.__name__ for one in get_perpetual_services(ephemeral=True)}
    assert "schedule_vacuum_tasks" not in names
    assert "schedule_event_vacuum_tasks" in names
