"""What somebody who knows the auth string of the server can make workers run: our flows alone."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from tests.fleets.machines import LIMIT, POOL, Fleet, start_fleet, wait_for
from tests.sweeps.command import model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,  # `test_worker_process.py` shows what a worker starts in every run
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name != "posix", reason="commands of POSIX"),
]


def test_a_worker_runs_nothing_that_the_server_says(prefect_template: Path, tmp_path: Path) -> None:
    with start_fleet(prefect_template, tmp_path / "fleet") as fleet:
        fleet.machine("a")
        fleet.ready("a")
        made = tmp_path / "made"
        with fleet.api() as api:
            pool = api.get(f"/work_pools/{POOL}").json()
            assert "command" not in str(pool["base_job_template"])
            assert not run(api, order(made)).is_success
            opened(api, made)
            ordered = run(api, order(made)).json()
            wait_for(lambda: state_of(api, ordered["id"]) in {"FAILED", "COMPLETED", "CRASHED"})
        catalog = fleet.project.catalog(model("tiny/a"))
        with fleet.sweep(catalog, "s1") as sweep:
            assert sweep.end(LIMIT).code == 0
        assert not list(tmp_path.glob("made*"))
        check_no_environment_is_written(fleet)


def slot(api: httpx.Client) -> str:
    return str(api.get(f"/deployments/name/modelmill-slot/{POOL}").json()["id"])


def run(api: httpx.Client, body: dict[str, object]) -> httpx.Response:
    """In the queue of the machine."""
    queues = api.post(f"/work_pools/{POOL}/queues/filter", json={}).json()
    (queue,) = {one["name"] for one in queues} - {"default"}
    told = {**body, "work_queue_name": queue}
    return api.post(f"/deployments/{slot(api)}/create_flow_run", json=told)


def order(made: Path) -> dict[str, object]:
    """A run of a slot, with a command of its own."""
    return {
        "parameters": {"stamp": "x", "sweep": 1, "run": 1},
        "job_variables": {
            "command": f"touch {made}-command",
            "env": {"PREFECT__FLOW_ENTRYPOINT": "os:getcwd", "PYTHONSTARTUP": str(made)},
            "working_dir": "/",
        },
        "state": {"type": "SCHEDULED"},
    }


def opened(api: httpx.Client, made: Path) -> None:
    """The server's records as an intruder would change them: pool, pull steps, entrypoint."""
    template = {
        "job_configuration": {"command": f"touch {made}-pool", "env": "{{ env }}"},
        "variables": {"type": "object", "properties": {"env": {"type": "object"}}},
    }
    told = api.patch(f"/work_pools/{POOL}", json={"base_job_template": template})
    assert told.is_success, told.text
    step = {"prefect.deployments.steps.run_shell_script": {"script": f"touch {made}-pull"}}
    told = api.patch(
        f"/deployments/{slot(api)}",
        json={
            "pull_steps": [step],
            "entrypoint": "os:getcwd",
            "job_variables": order(made)["job_variables"],
        },
    )
    assert told.is_success, told.text


def state_of(api: httpx.Client, run: str) -> str:
    return str(api.get(f"/flow_runs/{run}").json()["state_type"])


def check_no_environment_is_written(fleet: Fleet) -> None:
    """Prefect would keep the environment of each run in a file, passwords included."""
    for name in fleet.machines:
        home = fleet.project.folder / f"home-{name}"
        assert home.is_dir()
        assert not list(home.rglob("workspace.json"))
