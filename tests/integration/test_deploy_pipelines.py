"""The scripts of the pipelines, run as their agents run them: with bash, in their environment."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from matrix.errors import Exit
from tests.deployments.files import AZURE, GITHUB, scripts, step
from tests.machine.timing import patient
from tests.sweeps.command import Project, Ran, model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the agents of the files are Linux")

ASSERTION = "an-assertion-of-github"
REQUEST_TOKEN = "may-ask-for-assertions"


@dataclass
class Agent:
    """A machine that runs the steps of a pipeline in a folder."""

    project: Project
    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # What `pip install` would leave; the slots run without Prefect to be quick.
        command = self.project.folder / ".venv/bin/modelmill"
        command.parent.mkdir(parents=True)
        show = 'test -z "$AZURE_FEDERATED_TOKEN_FILE" || cp "$AZURE_FEDERATED_TOKEN_FILE" seen\n'
        run = f'exec "{sys.executable}" -m tests.sweeps.plain "$@"\n'
        command.write_text(f"#!/bin/sh\n{show}{run}", "utf-8")
        command.chmod(0o755)
        self.env |= {
            "MODELMILL_HOME": str(self.project.home),
            "MODELMILL_SUMMARY": str(self.out),
            "OUT": str(self.out),
        }

    @property
    def out(self) -> Path:
        return self.project.folder / "out"

    def run(self, name: str, **env: str) -> Ran:
        """One step; the shell is the one of the agent, with the options that it gives it."""
        options = ["--noprofile", "--norc"]
        if self.path is GITHUB:
            options += ["-e", "-o", "pipefail"]
        ran = subprocess.run(
            ["bash", *options, "-c", scripts(self.path)[name]],
            cwd=self.project.folder,
            env={**self.project.environment(), **self.env, **env},
            capture_output=True,
            text=True,
            timeout=patient(120),
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def sweep(self, catalog: str, **env: str) -> Ran:
        form = {"CATALOG": catalog, "STAMP": "s1", "TARGETS": "*", "MODELMILL_IF_CHANGED": "True"}
        return self.run("Sweep", **{**form, **env})


@contextmanager
def issuer(status: int = 200) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """What a runner offers for OpenID Connect; yields its address and the requests it has seen."""
    seen: list[Mapping[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({"path": self.path, **dict(self.headers)})
            body = json.dumps({"value": ASSERTION}).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token?api-version=2", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(params=[AZURE, GITHUB], ids=["azure-pipelines", "github"])
def agent(request: pytest.FixtureRequest, project: Project) -> Iterator[Agent]:
    made = Agent(project, request.param)
    if made.path is AZURE:
        yield made
        return
    made.env |= {
        "GITHUB_STEP_SUMMARY": str(project.folder / "step-summary"),
        "AZURE_FEDERATED_TOKEN_FILE": str(project.folder / "token"),
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
    }
    with issuer() as (url, _seen):
        made.env["ACTIONS_ID_TOKEN_REQUEST_URL"] = url
        yield made


def failing(project: Project) -> str:
    return project.catalog(model("tiny/a"), model("tiny/b", act={"quantize": "fail:EXPORT"}))


def shown_summary(agent: Agent, report: Ran) -> str:
    """The page of the run, by the way that the agent takes it."""
    if agent.path is GITHUB:
        return Path(agent.env["GITHUB_STEP_SUMMARY"]).read_text("utf-8")
    (line,) = [one for one in report.out.splitlines() if "##vso" in one]
    return Path(line.removeprefix("##vso[task.uploadsummary]")).read_text("utf-8")


def test_a_sweep_leaves_everything_that_is_kept(agent: Agent) -> None:
    ran = agent.sweep(agent.project.catalog(model("tiny/a")))
    assert ran.code == 0, ran
    assert "8 published" in ran.out
    report = agent.run("Report")
    assert report.code == 0, report
    assert {path.name for path in agent.out.iterdir()} >= {
        "summary.json",
        "summary.md",
        "junit.xml",
        "report.html",
    }
    assert "Sweep s1" in shown_summary(agent, report)
    cases = ET.parse(agent.out / "junit.xml").findall(".//testcase")
    assert len(cases) == 8
    if agent.path is AZURE:
        inputs = step(AZURE, "A test case per cell")["inputs"]
        assert (agent.out / inputs["testResultsFiles"]).exists()
    assert "8 unchanged" in agent.sweep("catalog.toml", STAMP="s2").out  # the next night


def test_a_failed_cell_fails_the_step_and_is_reported(agent: Agent) -> None:
    ran = agent.sweep(failing(agent.project))
    assert ran.code == Exit.CELLS_FAILED, ran
    assert agent.run("Report").code == 0
    assert ET.parse(agent.out / "junit.xml").findall(".//failure")


def test_a_wrong_form_fails_the_step_and_leaves_nothing_to_report(agent: Agent) -> None:
    ran = agent.sweep('x"; touch broken; echo "$(touch broken)', TARGETS="$(touch broken)")
    assert ran.code == Exit.USAGE, ran
    assert not (agent.project.folder / "broken").exists()
    report = agent.run("Report")
    assert (report.code, report.err) == (0, "")


def test_today_is_a_date(agent: Agent) -> None:
    ran = agent.sweep(agent.project.catalog(model("tiny/a")), STAMP="today", TARGETS="mlas_cpu")
    assert ran.code == 0, ran
    with agent.project.state() as state:
        (sweep,) = state.sweeps()
    assert len(sweep.stamp) == 8
    assert sweep.stamp.isdigit()


def test_github_tells_azure_who_it_is(project: Project) -> None:
    agent = Agent(project, GITHUB)
    token = project.folder / "token"
    with issuer() as (url, seen):
        agent.env |= {
            "AZURE_FEDERATED_TOKEN_FILE": str(token),
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
            "ACTIONS_ID_TOKEN_REQUEST_URL": url,
        }
        ran = agent.sweep(project.catalog(model("tiny/a")), TARGETS="mlas_cpu")
    assert ran.code == 0, ran
    assert (project.folder / "seen").read_text("utf-8").strip() == ASSERTION
    assert (project.folder / "seen").stat().st_mode & 0o777 == 0o600
    assert not token.exists()  # gone with the step
    assert seen[0]["Authorization"] == f"bearer {REQUEST_TOKEN}"
    assert seen[0]["path"].endswith("&audience=api%3A%2F%2FAzureADTokenExchange")
    assert REQUEST_TOKEN not in ran.out + ran.err


def test_github_stops_where_nobody_vouches(project: Project) -> None:
    agent = Agent(project, GITHUB)
    with issuer(status=403) as (url, _seen):
        agent.env |= {
            "AZURE_FEDERATED_TOKEN_FILE": str(project.folder / "token"),
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
            "ACTIONS_ID_TOKEN_REQUEST_URL": url,
        }
        ran = agent.sweep(project.catalog(model("tiny/a")))
    assert ran.code != 0
    assert not (project.folder / "seen").exists()
