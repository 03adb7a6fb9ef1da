"""What Prefect does that we work around. A test that fails here says that Prefect does better now:
the code that names the test (`Works around Prefect (test_...)`) may go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.deployments import flow_runs, run_deployment
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending, Scheduled
from prefect.utilities.callables import parameter_schema

from tests.fleets.machines import PrefectServer, copied, gone, prefect_server
from tests.fleets.plain_flows import wait_for_release
from tests.machine.timing import eventually, patient
from tests.sweeps.command import ROOT

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]
POOL = "plain"
LIMIT = 120.0


@pytest.fixture(scope="module")
def server(
    prefect_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrefectServer]:
    with prefect_server(prefect_template, tmp_path_factory.mktemp("limits") / "prefect") as made:
        yield made


@pytest.fixture(scope="module")
def client(server: PrefectServer) -> Iterator[SyncPrefectClient]:
    with (
        temporary_settings({PREFECT_API_URL: server.url}),
        get_client(sync_client=True) as made,
    ):
        made.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        deploy(made, POOL)
        yield made


def deploy(client: SyncPrefectClient, name: str, **options: Any) -> None:
    client.create_deployment(
        flow_id=client.create_flow(wait_for_release),
        name=name,
        entrypoint="tests.fleets.plain_flows:wait_for_release",
        pull_steps=[],
        work_pool_name=POOL,
        parameter_openapi_schema=parameter_schema(wait_for_release).model_dump_for_openapi(),
        enforce_parameter_schema=True,
        **options,
    )


def submit(folder: Path, deployment: str = POOL) -> Any:
    name = f"wait-for-release/{deployment}"
    return run_deployment(name, parameters={"folder": str(folder)}, timeout=0, as_subflow=False)


def environment(server: PrefectServer, folder: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "PREFECT_API_URL": server.url,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_LOGGING_LEVEL": "ERROR",
    }


@contextmanager
def child(*command: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is killed at the end, if it still runs."""
    with subprocess.Popen(
        [sys.executable, *command],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass(frozen=True)
class Stopped:
    """What is left of a worker that was told to stop while it had a run."""

    run_gone: bool
    state: str
    temporary: list[str]


@pytest.fixture(scope="module")
def stopped(
    server: PrefectServer, client: SyncPrefectClient, tmp_path_factory: pytest.TempPathFactory
) -> Stopped:
    folder, temporary = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("temporary")
    run = submit(folder)
    start = ("-m", "prefect", "worker", "start", "--type", "process", "--pool", POOL)
    pid = 0
    with child(*start, env=environment(server, temporary)) as worker:
        try:
            assert eventually(lambda: bool(text_of(folder / "started")), LIMIT)
            pid = int(text_of(folder / "started"))
            worker.send_signal(signal.SIGTERM)
            worker.wait(patient(LIMIT))
            return Stopped(
                eventually(lambda: gone(pid), 10),
                client.read_flow_run(run.id).state_name or "",
                [path.name for path in temporary.iterdir() if path.name != "prefect"],
            )
        finally:
            if pid and not gone(pid):
                os.kill(pid, signal.SIGKILL)


def text_of(path: Path) -> str:
    return path.read_text("ascii") if path.exists() else ""


def test_a_worker_that_is_told_to_stop_kills_its_runs(stopped: Stopped) -> None:
    assert stopped.run_gone


def test_a_killed_run_leaves_its_temporary_folder(stopped: Stopped) -> None:
    assert stopped.temporary


def test_a_killed_run_stays_running_on_the_server(stopped: Stopped) -> None:
    assert stopped.state == "Running"


def test_a_pending_run_is_never_given_to_another_worker(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    run = submit(tmp_path)
    soon = datetime.now(UTC) + timedelta(hours=1)

    def offered() -> bool:
        found = client.get_scheduled_flow_runs_for_work_pool(POOL, scheduled_before=soon)
        return run.id in {one.flow_run.id for one in found}

    assert offered()
    client.set_flow_run_state(run.id, Pending(), force=True)
    assert not offered()
    client.set_flow_run_state(run.id, Scheduled(), force=True)
    assert offered()
    client.delete_flow_run(run.id)


def test_a_concurrency_limit_counts_the_runs_of_one_deployment(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    cancel_new = ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    deploy(client, "limited", concurrency_limit=1, concurrency_options=cancel_new)
    other, first, second = submit(tmp_path), *(submit(tmp_path, "limited") for _run in range(2))
    for run, state in ((other, "Pending"), (first, "Pending"), (second, "Cancelled")):
        client.set_flow_run_state(run.id, Pending())
        assert client.read_flow_run(run.id).state_name == state
    for run in (other, first, second):
        client.delete_flow_run(run.id)


def test_a_concurrency_limit_is_decided_before_a_run_is_due(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    cancel_new = ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    deploy(client, "nightly", concurrency_limit=1, concurrency_options=cancel_new)
    first = submit(tmp_path, "nightly")
    client.set_flow_run_state(first.id, Pending())
    due = datetime.now(UTC) + timedelta(hours=1)
    second = client.create_flow_run_from_deployment(
        first.deployment_id, parameters=first.parameters, state=Scheduled(scheduled_time=due)
    )
    client.set_flow_run_state(second.id, Pending())
    assert client.read_flow_run(second.id).state_name == "Cancelled"
    for run in (first, second):
        client.delete_flow_run(run.id)


def test_a_run_is_due_by_the_clock_of_whoever_submits_it(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(flow_runs, "now", lambda _zone: ahead)
    run = submit(tmp_path)
    due = client.read_flow_run(run.id).expected_start_time
    assert due is not None
    assert abs(due.timestamp() - ahead.timestamp()) < 60
    client.delete_flow_run(run.id)


def test_the_form_of_a_flow_takes_unknown_parameters(
    server: PrefectServer, client: SyncPrefectClient, tmp_path: Path
) -> None:
    deployment = client.read_deployment_by_name(f"wait-for-release/{POOL}").id
    wanted = {"parameters": {"folder": str(tmp_path), "fodler": "misspelt"}}
    reply = httpx.post(f"{server.url}/deployments/{deployment}/create_flow_run", json=wanted)
    assert reply.status_code == 201, reply.text
    client.delete_flow_run(reply.json()["id"])


@pytest.fixture(scope="module")
def facts(server: PrefectServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a flow does in a process of its own."""
    env = environment(server, tmp_path_factory.mktemp("tasks"))
    with child("-m", "tests.fleets.plain_flows", "cancelled_flow", env=env) as process:
        out, _nothing = process.communicate(timeout=patient(LIMIT))
    found: dict[str, Any] = {}
    for line in out.splitlines():
        with suppress(ValueError):
            found |= json.loads(line)
    return found


def test_a_cancelled_run_is_interrupted_in_its_main_thread(facts: dict[str, Any]) -> None:
    assert (facts["cancelled"], facts["in_main"]) == ("TerminationSignal", True)


@pytest.mark.slow
def test_prefects_temporary_server_outlives_a_killed_owner(
    prefect_template: Path, server: PrefectServer, tmp_path: Path
) -> None:
    env = environment(server, tmp_path)
    copied(prefect_template, Path(env["PREFECT_HOME"]))
    del env["PREFECT_API_URL"]
    env["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = str(int(patient(LIMIT)))
    with child("-m", "tests.fleets.plain_flows", "temporary_server", env=env) as owner:
        assert owner.stdout
        left = psutil.Process(json.loads(owner.stdout.readline())["pid"])
        try:
            owner.kill()
            owner.wait(patient(LIMIT))
            assert not eventually(lambda: gone(left.pid), 5)
        finally:
            left.kill()


@pytest.mark.slow
def test_servers_that_migrate_one_new_database_at_once_fail(
    server: PrefectServer, tmp_path: Path
) -> None:
    def fails(home: Path) -> bool:
        env = {**environment(server, tmp_path), "PREFECT_HOME": str(home)}
        migrate = ("-m", "prefect", "server", "database", "upgrade", "--yes")
        started = [
            subprocess.Popen(
                [sys.executable, *migrate],
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _server in range(3)
        ]
        return max(process.wait(patient(LIMIT)) for process in started) != 0

    assert any(fails(tmp_path / f"home-{number}") for number in range(5))
