"""One whole sweep, shown on a Prefect server that was there before, with secrets all around it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from flows.prefect.server import start_server
from tests.machine.timing import eventually, patient
from tests.sweeps.command import Project, Ran, model

SECRETS = {
    "HF_TOKEN": "hf_verySecretHubToken",
    "AZURE_DEVOPS_EXT_PAT": "verysecretazurepat7",
    "SYSTEM_ACCESSTOKEN": "verysecretpipeline",
    "DATABASE_PASSWORD": "verysecretdatabase",
    "AWS_SECRET_ACCESS_KEY": "verysecretcloudkey",
    "OTHER_URL": "postgresql://me:verysecreturl@host/db",
}
PARTS = [value.rpartition(":")[2].partition("@")[0] for value in SECRETS.values()]


@dataclass(frozen=True)
class Shown:
    """The sweep, and the server it was shown on."""

    project: Project
    url: str
    ran: Ran

    def ask(self, what: str, **filters: Any) -> list[dict[str, Any]]:
        """What the server has of something."""
        request = urllib.request.Request(
            f"{self.url}/{what}/filter",
            json.dumps(filters).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=patient(30)) as reply:
            found: list[dict[str, Any]] = json.load(reply)
            return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, prefect_template: Path) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("shown")
    shutil.copytree(prefect_template, folder / "server" / "prefect")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    server = start_server(folder / "server", kept)
    try:
        server.wait(threading.Event())
        project = Project(folder / "project", env={**SECRETS, "PREFECT_API_URL": server.url})
        project.folder.mkdir()
        leaking = {"quantize@qnn_npu": "leak:HF_TOKEN", "quantize@ov_npu": "leak:OTHER_URL"}
        gate = project.folder / "gate"
        catalog = project.catalog(
            model("tiny/a"),
            model(
                "tiny/b", act={"optimize": "print:AZURE_DEVOPS_EXT_PAT", "export": f"wait:{gate}"}
            ),
            model("tiny/leak", act=leaking),
        )
        with project.start("sweep", catalog, "--stamp", "S 1") as running:
            shown = Shown(project, server.url, Ran(0, "", ""))
            eventually(lambda: any(one["task_run_id"] for one in shown.ask("artifacts")), 60)
            gate.with_name("gate.go").touch()
            yield replace(shown, ran=running.end())
    finally:
        server.stop()


def test_the_run_is_on_the_server_with_names_tags_and_parameters(shown: Shown) -> None:
    assert (shown.ran.code, shown.ran.err) == (1, "")
    (run,) = shown.ask("flow_runs")
    assert run["name"] == "s-1"
    assert {"stamp:s-1", "target:ov_npu", "model:tiny/leak:fill-mask"} <= set(run["tags"])
    assert run["parameters"]["stamp"] == "s-1"
    assert run["parameters"]["catalog"].endswith("catalog.toml")
    tasks = {one["name"]: one["state"]["type"] for one in shown.ask("task_runs")}
    assert tasks == {
        "tiny/a:fill-mask#1": "COMPLETED",
        "tiny/b:fill-mask#1": "COMPLETED",
        "tiny/leak:fill-mask#1": "FAILED",
    }
    tagged = {"task_runs": {"tags": {"all_": ["cell:tiny/b:fill-mask@ov_npu"]}}}
    assert [one["name"] for one in shown.ask("task_runs", **tagged)] == ["tiny/b:fill-mask#1"]


def test_a_sweep_with_failures_is_red_and_says_why(shown: Shown) -> None:
    (run,) = shown.ask("flow_runs")
    assert run["state"]["type"] == "FAILED"
    assert "22 published, 2 build failed" in run["state"]["message"]
    assert "QUANTIZE  2 cells of tiny/leak:fill-mask: " in run["state"]["message"]
    assert run["run_count"] <= 1
    (task,) = [one for one in shown.ask("task_runs") if one["state"]["type"] == "FAILED"]
    assert task["state"]["message"].startswith("2 failed\n")
    assert "\nov_npu: " in task["state"]["message"]
    logs = shown.ask("logs")
    assert all(one["flow_run_id"] == run["id"] for one in logs)
    failed = [one for one in logs if one["level"] == logging.ERROR]
    assert {one["task_run_id"] for one in failed} == {task["id"]}
    assert len([one for one in logs if one["message"].startswith("published ")]) == 25


def test_the_artifacts_of_a_catalog_have_a_history(shown: Shown) -> None:
    artifacts = {one["key"]: one for one in shown.ask("artifacts") if one["key"]}
    kinds = ("progress", "outcomes", "summary")
    assert artifacts.keys() == {f"modelmill-catalog-{kind}" for kind in kinds}
    progress, outcomes, summary = (artifacts[f"modelmill-catalog-{kind}"] for kind in kinds)
    assert progress["data"] == 100.0
    assert "24 of 24 cells, 2 failed" in progress["description"]
    table = json.loads(outcomes["data"])
    assert len(table) == 27
    assert [row["status"] for row in table[:3]] == ["build_failed", "build_failed", "published"]
    assert "## Failures (2 cells)" in summary["data"]
    assert "`modelmill report s-1`" in summary["data"]


def test_a_task_run_shows_what_its_engine_was_doing(shown: Shown) -> None:
    runs = {one["name"]: one["id"] for one in shown.ask("task_runs")}
    told = [
        one for one in shown.ask("artifacts") if one["task_run_id"] == runs["tiny/b:fill-mask#1"]
    ]
    assert [one["data"] for one in told] == ["export begins: `tiny/b:fill-mask@export`"]


def test_nothing_had_to_be_set_up_and_the_server_goes_on(shown: Shown) -> None:
    assert not (shown.project.home / "prefect").exists()
    assert shown.project.alone()
    with urllib.request.urlopen(f"{shown.url}/health", timeout=patient(30)) as reply:
        assert reply.status == 200


def test_no_secret_is_told_anywhere(shown: Shown) -> None:
    """Not on the console, in the state, a log, a manifest, a report, or Prefect's history."""
    reported = [
        shown.project.run("status", "s-1", "--failed"),
        shown.project.run("status", "s-1", "--json"),
        shown.project.run("plan", "catalog.toml", "--json"),
    ]
    said = "".join(ran.out + ran.err for ran in (shown.ran, *reported))
    assert "401 for url" in said
    told = [part for part in PARTS if part in said]
    places = [path for path in shown.project.folder.parent.rglob("*") if path.is_file()]
    assert {"state.db", "prefect.db"} <= {path.name for path in places}
    for path in places:
        data = path.read_bytes()
        told += [f"{part} in {path}" for part in PARTS if part.encode() in data]
    assert told == []
    logs = "".join(path.read_text() for path in (shown.project.home / "logs").rglob("*.log"))
    assert "AZURE_DEVOPS_EXT_PAT is not set" in logs
    assert "*" * len(SECRETS["HF_TOKEN"]) in logs
