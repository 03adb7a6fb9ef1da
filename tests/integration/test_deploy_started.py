"""A fleet made of what the files of `deploy/` start: their commands, in their environment."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from deploy import environment
from deploy.service import read_environment
from tests.deployments.files import DEPLOY, unit
from tests.deployments.tools import psql
from tests.machine.timing import eventually
from tests.services.postgres import free_port, postgres
from tests.sweeps.command import Project, model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name != "posix", reason="systemd's units"),
]

PROGRAMS = {
    "/opt/modelmill/bin/modelmill": (sys.executable, "-m", "flows.cli.main"),
    "/opt/modelmill/bin/prefect": (sys.executable, "-m", "prefect"),
}


@dataclass
class Machine:
    """A folder in the place of the root of a machine."""

    root: Path
    project: Project
    port: int

    def etc(self, name: str) -> Path:
        return self.root / "etc" / f"{name}.env"

    def started(self, text: str) -> str:
        """What systemd makes of the text of a setting."""
        return text.replace("%S", str(self.root / "state")).replace(" 4200", f" {self.port}")

    @contextmanager
    def unit(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """What systemd would start, where and with which environment."""
        settings = unit(name)
        given = dict(self.started(line).split("=", 1) for line in settings["Environment"])
        home = Path(self.started(settings["WorkingDirectory"][0]))
        home.mkdir(parents=True)
        program, *arguments = shlex.split(self.started(settings["ExecStart"][0]))
        env = {**self.project.environment(), **given, **read_environment(self.etc(name))}
        for line in settings.get("ExecStartPre", []):
            # systemd takes `$$` for a dollar.
            check = shlex.split(line.replace("$$", "$"))
            assert subprocess.run(check, env=env).returncode == 0
            del env["PREFECT_SERVER_API_AUTH_STRING"]
            assert subprocess.run(check, env=env, stderr=subprocess.DEVNULL).returncode != 0
            env |= read_environment(self.etc(name))
        with self.process(f"unit-{name}", [*PROGRAMS[program], *arguments], env, home) as process:
            yield process

    @contextmanager
    def process(
        self, name: str, command: list[str], env: dict[str, str], cwd: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                command, env=env, cwd=cwd, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def says(self, name: str, text: str, process: subprocess.Popen[bytes]) -> bool:
        """Whether that process comes to say this before it ends."""

        def said() -> bool:
            log = self.log(name)
            return log.exists() and text in log.read_text("utf-8")

        return eventually(lambda: said() or process.poll() is not None, 240.0) and said()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    project = Project(tmp_path / "project")
    project.folder.mkdir()
    project.env = {"MODELMILL_JOBS": "1", "PREFECT_WORKER_QUERY_SECONDS": "1"}
    machine = Machine(tmp_path / "root", project, free_port())
    with postgres() as database:
        try:
            url = f"http://127.0.0.1:{machine.port}/api"
            place = f"127.0.0.1:{database.port}"
            arguments = [str(machine.root / "etc"), "--database", place, "--server", url]
            assert environment.main(arguments) == 0
            passwords = read_environment(machine.etc("postgres"))
            made = psql(database, "--file", DEPLOY / "databases.sql", **passwords)
            assert made.returncode == 0, made.stderr
            yield machine
        finally:
            for process in project.processes():
                process.kill()


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_fleet_of_the_files(machine: Machine) -> None:
    """The server's unit, the worker's unit, and beside it a worker as Windows starts it."""
    # Another mark: the end of a command must not end the services.
    project = Project(machine.project.folder, machine.project.env)
    worker = read_environment(machine.etc("worker"))
    url = worker["PREFECT_API_URL"]
    feed = {"MODELMILL_FEED": str(project.feed_folder)}
    with ExitStack() as stack:
        server = stack.enter_context(machine.unit("server"))
        assert eventually(lambda: healthy(url), 120.0), machine.log("unit-server").read_text()
        refused = httpx.post(f"{url}/flows/filter", json={}, trust_env=False, timeout=30)
        assert refused.status_code == 401
        assert (machine.root / "state/modelmill-server/ui").is_dir()
        project.env |= feed
        project.ok("deploy", plain=False, **worker)

        by_systemd = stack.enter_context(machine.unit("worker"))
        stop = machine.root / "stop"
        options = ["--env-file", str(machine.etc("worker")), "--stop-file", str(stop)]
        options += ["--log", str(machine.log("by-task")), "worker", "--home", "by-task"]
        command = [sys.executable, "-m", "deploy.service", *options, "--drain-limit", "30m"]
        by_task = stack.enter_context(
            machine.process("task", command, project.environment(), machine.root)
        )
        for log, process in (("unit-worker", by_systemd), ("by-task", by_task)):
            assert machine.says(log, "slots in", process), machine.log(log).read_text()

        held = project.folder / "go"
        act, journal = {"quantize": f"wait:{held}"}, str(project.folder / "journal")
        names = ("tiny/a", "tiny/b")
        models = [model(name, act=act, journal=journal, salt=name) for name in names]
        catalog = project.catalog(*models)
        order = ("sweep", catalog, "--fleet", "--stamp", "s1")
        with project.start(*order, plain=False, **worker) as running:
            # Both have a model at hand when they are told to stop; both finish it.
            assert eventually(lambda: len(waiting(project)) == 2, 120.0)
            by_systemd.send_signal(signal.SIGTERM)
            stop.touch()
            assert machine.says("unit-worker", "draining: ", by_systemd)
            assert machine.says("by-task", "draining: ", by_task)
            held.with_name("go.go").touch()
            by_systemd.wait(120)
            by_task.wait(120)
            assert (by_systemd.returncode, by_task.returncode) == (0, 0)
            assert eventually(lambda: len(project.published()) >= 2 * 8, 60.0)
            running.signal(signal.SIGINT)
            running.end()
        server.terminate()
        server.wait(60)
    assert machine.project.alone()
    secrets = [one for one in worker.values() if "http" not in one]
    for file in machine.root.glob("*.log"):
        text = file.read_text("utf-8")
        assert not [one for one in secrets if one in text], file


def waiting(project: Project) -> list[str]:
    """The models whose quantization has begun, and waits."""
    return [line for line in project.journal() if "quantize" in line]
