"""A sweep that Prefect starts: parameters, no overlap, messages, what changed, retry."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.fleet.lead import PARENT_FLOW
from state.state import open_state
from tests.fleets.machines import POOL, FleetProject, fleet_project, prefect_server
from tests.machine.timing import eventually
from tests.services.postgres import postgres
from tests.services.webhook import Told, webhook
from tests.sweeps.command import Running, model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="PostgreSQL is started by its POSIX tools"),
]
LIMIT = 90.0
NIGHTLY = f"modelmill-fleet/{POOL}-nightly"


@dataclass
class NightlyFleet:
    """A fleet with a nightly sweep, and Prefect's API as a script would call it."""

    project: FleetProject
    told: Told
    api: httpx.Client

    def start(self, **parameters: Any) -> str:
        """Start the nightly deployment; returns the flow run."""
        deployment = self.api.get(f"/deployments/name/{NIGHTLY}").json()["id"]
        replies: list[httpx.Response] = []

        def accepted() -> bool:
            body = {"parameters": parameters}
            url = f"/deployments/{deployment}/create_flow_run"
            replies.append(self.api.post(url, json=body))
            return replies[-1].status_code != 503  # its SQLite is busy: as clients do, once more

        assert eventually(accepted, LIMIT)
        assert replies[-1].status_code == 201, replies[-1].text
        return str(replies[-1].json()["id"])

    def run(self, flow_run: str) -> dict[str, Any]:
        return dict(self.api.get(f"/flow_runs/{flow_run}").json())

    def ended(self, flow_run: str) -> dict[str, Any]:
        """The flow run when it is over."""
        final = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
        assert eventually(lambda: self.run(flow_run)["state_type"] in final, LIMIT), self.run(
            flow_run
        )
        return self.run(flow_run)

    def leading(self) -> list[str]:
        """Parents that are not over."""
        body = {
            "flows": {"name": {"any_": [PARENT_FLOW]}},
            "flow_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}},
        }
        found = self.api.post("/flow_runs/filter", json=body).json()
        return [run["name"] for run in found if not run["auto_scheduled"]]

    def artifact(self, key: str) -> dict[str, Any]:
        reply = self.api.get(f"/artifacts/{key}/latest")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def task_runs(self, tag: str) -> list[dict[str, Any]]:
        body = {"task_runs": {"tags": {"all_": [tag]}}}
        return list(self.api.post("/task_runs/filter", json=body).json())


@contextmanager
def nightly(template: Path, folder: Path, cron: str, **services: str) -> Iterator[NightlyFleet]:
    """A fleet with a deployment that is due by this schedule."""
    with (
        postgres() as database,
        prefect_server(template, folder / "prefect", **services) as server,
        webhook() as (address, told),
        httpx.Client(base_url=server.url, timeout=60) as api,
    ):
        database.execute("CREATE DATABASE nightly")
        url = database.url("nightly")
        open_state(url).close()
        project = fleet_project(folder / "project", server, url, NOTIFY_URL=address)
        catalog = str(project.folder / project.catalog(model()))
        options = ("--nightly", cron, "--catalog", catalog, "--if-changed")
        project.ok(
            "deploy", "--pool", POOL, *options, "--target", "mlas_cpu", "--notify", "webhook"
        )
        yield NightlyFleet(project, told, api)


@pytest.fixture
def world(prefect_template: Path, tmp_path: Path) -> Iterator[NightlyFleet]:
    triggers = {"PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "true"}
    with nightly(prefect_template, tmp_path, "0 2 31 12 *", **triggers) as made:
        yield made


def test_a_nightly_sweep_from_its_deployment_to_a_retry(world: NightlyFleet) -> None:
    project = world.project
    with project.worker("a", "--sweeps", "2"):
        refuses_what_is_no_parameter(world)
        does_not_overlap(world)
        shows_itself(world)
        tells_of_failures_and_of_what_changed(world)
        is_retried(world)
    with project.worker("c", "--sweeps", "0"), project.worker("b", "--sweeps", "1") as leaves:
        does_not_begin_while_another_machine_leads(world, leaves)
    assert project.machines.alone()


def test_a_schedule_comes_due(prefect_template: Path, tmp_path: Path) -> None:
    """Every minute, for a test cannot wait for the night; a server of the short-lived kind, as
    the others are, has no scheduler."""
    lasting = {"PREFECT__SERVER_EPHEMERAL": ""}
    with nightly(prefect_template, tmp_path, "* * * * *", **lasting) as world:
        project = world.project
        with project.worker("a", "--sweeps", "1"), project.state() as state:
            stamp = datetime.now().strftime("%Y%m%d")  # noqa: DTZ005 - the date of this place
            assert eventually(lambda: state.find_sweep(stamp) is not None, LIMIT + 60)
            assert eventually(lambda: project.statuses(stamp) == {"published": 1}, LIMIT)


def refuses_what_is_no_parameter(world: NightlyFleet) -> None:
    deployment = world.api.get(f"/deployments/name/{NIGHTLY}").json()
    form = deployment["parameter_openapi_schema"]["definitions"]["SweepSettings"]["properties"]
    assert form["timeout"]["description"] == "time limit for one build stage"
    for wrong in ({"settings": {"trget": ["x"]}}, {"settings": {"timeout": "long"}}, {"moon": 1}):
        reply = world.api.post(
            f"/deployments/{deployment['id']}/create_flow_run", json={"parameters": wrong}
        )
        assert reply.status_code in {409, 422}, (wrong, reply.text)


def does_not_overlap(world: NightlyFleet) -> None:
    project, gate = world.project, world.project.folder / "gate"
    project.catalog(model("tiny/a", act={"optimize": f"wait:{gate}"}), model("tiny/b"))
    first = world.start(stamp="n1")
    assert eventually(gate.exists, LIMIT)
    second = world.ended(world.start(stamp="other"))
    assert second["state_type"] == "CANCELLED"
    assert "left out: sweep-n1 of an earlier night" in second["state"]["message"]
    gate.with_name("gate.go").touch()
    assert world.ended(first)["state_type"] == "COMPLETED"
    assert project.statuses("n1") == {"published": 2}
    with project.state() as state:
        assert state.find_sweep("other") is None


def shows_itself(world: NightlyFleet) -> None:
    named = {"flow_runs": {"name": {"any_": ["sweep-n1"]}}}
    (run,) = world.api.post("/flow_runs/filter", json=named).json()
    assert {"stamp:n1", "target:mlas_cpu", "model:tiny/a:fill-mask"} <= set(run["tags"])
    assert eventually(lambda: len(world.task_runs("stamp:n1")) == 2, LIMIT)
    (task,) = world.task_runs("model:tiny/b:fill-mask")
    assert task["name"] == "tiny/b:fill-mask#1"
    assert "target:mlas_cpu" in task["tags"]
    assert world.artifact("modelmill-catalog-progress")["data"] == 100.0
    assert "tiny/b:fill-mask@mlas_cpu" in str(world.artifact("modelmill-catalog-outcomes")["data"])
    report = world.artifact("modelmill-catalog-summary")["data"]
    assert "modelmill-index 0.0.0-n1" in report
    assert "Since" not in report


def tells_of_failures_and_of_what_changed(world: NightlyFleet) -> None:
    project = world.project
    broken = {"optimize": f"once:{project.folder / 'broken'}:fail:OPTIMIZE"}
    project.catalog(
        model("tiny/a", salt="changed"), model("tiny/b", salt="new", act=broken), model("tiny/c")
    )
    assert world.ended(world.start(stamp="n2"))["state_type"] == "FAILED"
    message = world.told.get(timeout=LIMIT)
    assert message["title"] == "modelmill sweep-n2: Failed"
    assert "tiny/b:fill-mask@mlas_cpu" in message["text"]
    report = world.artifact("modelmill-catalog-summary")["data"]
    assert "## Since n1" in report
    for news in (
        "now fails: `tiny/b:fill-mask@mlas_cpu`",
        "changed: `tiny/a:fill-mask@mlas_cpu`",
        "new: `tiny/c:fill-mask@mlas_cpu`",
    ):
        assert news in report


def is_retried(world: NightlyFleet) -> None:
    project = world.project
    ran = project.run("retry", "n2", *project.fleet("--summary", "out"), plain=False)
    assert (ran.code, ran.err) == (0, ""), ran
    assert project.statuses("n2") == {"published": 3}
    assert (project.folder / "out" / "junit.xml").exists()
    again = project.run("retry", "n2", *project.fleet(), plain=False)
    assert again.code == 4
    assert "nothing to retry" in again.err
    # Nothing more is told, though a busy server may tell twice of a failure.
    assert {one["title"] for one in world.told.queue} <= {"modelmill sweep-n2: Failed"}


def does_not_begin_while_another_machine_leads(world: NightlyFleet, leaves: Running) -> None:
    """The nightly run ends with its worker; what leads then is no run of the nightly deployment."""
    project, gate = world.project, world.project.folder / "gate-3"
    project.catalog(model("tiny/z", act={"optimize": f"wait:{gate}"}))
    first = world.start(stamp="n3")
    assert eventually(gate.exists, LIMIT)
    with project.worker("d", "--sweeps", "2"):
        leaves.signal(signal.SIGTERM)
        assert "no longer leads" in world.ended(first)["state"]["message"]
        left_out = world.ended(world.start(stamp="other"))
        assert left_out["state_type"] == "CANCELLED"
        assert "of an earlier night is not over" in left_out["state"]["message"]
        gate.with_name("gate-3.go").touch()
        assert eventually(lambda: project.statuses("n3") == {"published": 1}, LIMIT)
        assert eventually(lambda: not world.leading(), LIMIT)
