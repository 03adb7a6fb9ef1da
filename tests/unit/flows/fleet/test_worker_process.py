"""What a worker starts for a flow run, whatever the server says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.workers import process

from flows.fleet.worker_process import main, run_only


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    loads = vars(process)["load_flow_from_flow_run"]
    monkeypatch.setattr(process.ProcessWorker, "job_configuration", process.ProcessJobConfiguration)
    yield
    vars(process)["load_flow_from_flow_run"] = loads


def test_a_run_takes_nothing_from_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OURS", "kept")
    run_only("slot")
    env = {"PREFECT__FLOW_ENTRYPOINT": "os:getcwd", "LD_PRELOAD": "x"}
    told = {"command": "touch pool", "env": env, "working_dir": str(tmp_path)}
    job = vars(process.ProcessWorker)["job_configuration"].model_validate(told)
    job.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4()))
    assert job.command is not None
    assert Path(sys.executable).name in job.command
    assert job.command.endswith("-m prefect.engine")
    assert job.working_dir is None
    assert job.env["PREFECT__FLOW_ENTRYPOINT"] == "modelmill.fleet:slot"
    assert job.env["OURS"] == "kept"
    assert "LD_PRELOAD" not in job.env


def test_what_is_asked_after_a_crash_is_our_flow() -> None:
    run_only("parent")
    flow = asyncio.run(vars(process)["load_flow_from_flow_run"](None))
    assert flow.name == "modelmill-fleet"


def test_it_serves_no_other_flow() -> None:
    with pytest.raises(SystemExit, match="parent or slot, not other"):
        main("other", "pool", "", "name", "1")
