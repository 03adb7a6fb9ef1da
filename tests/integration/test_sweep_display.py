"""Prefect shows a sweep and never decides about it: servers that are absent, slow, late or die."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fleets.machines import PrefectServer, copied, named
from tests.machine.timing import eventually, patient
from tests.sweeps.command import NOBODY, Project, Ran, Running, model

NOTE = "note: Prefect does not show all of this run: "


def asked(server: PrefectServer, what: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"{server.url}/{what}",
        json.dumps(body or {}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=patient(30)) as reply:
        return json.load(reply)


def check_built(project: Project, ran: Ran, cells: int = 8) -> None:
    assert (ran.code, ran.err) == (0, ""), ran
    assert project.statuses("s1") == {"published": cells}


@contextmanager
def waiting(project: Project, *said: str, **env: str) -> Iterator[Running]:
    """A sweep whose second model waits for `go`; the first is through."""
    project.catalog(
        model("tiny/a"), model("tiny/b", act={"export": f"wait:{project.folder / 'gate'}"})
    )
    arguments = ("sweep", "catalog.toml", "--stamp", "s1", "--jobs", "1")
    with project.start(*arguments, plain=False, **env) as running:
        running.until("8/16] published", *said)
        yield running


def go(project: Project) -> None:
    (project.folder / "gate.go").touch()


def test_an_absent_server_costs_a_line(project: Project) -> None:
    project.catalog(model())
    arguments = ("sweep", "catalog.toml", "--stamp", "s1", "--summary", "out")
    ran = project.run(*arguments, plain=False, PREFECT_API_URL=NOBODY)
    check_built(project, ran)
    assert ran.out.count(NOTE) == 1
    why = "the Prefect server 127.0.0.1 does not answer"
    assert f"{NOTE}{why}\n" in ran.out
    assert json.loads((project.folder / "out" / "summary.json").read_text())["unshown"] == why
    assert f"{why}." in (project.folder / "out" / "summary.md").read_text()


def test_a_server_that_says_nothing_holds_nothing_up(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://me:secretword@127.0.0.1:{silent.getsockname()[1]}/api"
        with waiting(project, PREFECT_API_URL=url) as running:
            go(project)
            ran = running.end()
    check_built(project, ran, 16)
    assert "secretword" not in ran.out
    assert NOTE in ran.out


def test_a_late_server_is_told_everything_and_cancels(
    tmp_path: Path, project: Project, prefect_template: Path
) -> None:
    """Absent at first, then there, gone, and there again; at last somebody cancels in Prefect."""
    server = PrefectServer(copied(prefect_template, tmp_path / "server"))
    why = "not shown in Prefect, the sweep continues: the Prefect server 127.0.0.1 does"
    with waiting(project, why, PREFECT_API_URL=server.url) as running:
        server.start()
        try:
            assert eventually(lambda: len(asked(server, "task_runs/filter")) == 2, 90)
            server.stop()
            server.start()
            (run,) = asked(server, "flow_runs/filter")
            assert run["state"]["type"] == "RUNNING"
            cancelling = {"state": {"type": "CANCELLING"}, "force": True}
            asked(server, f"flow_runs/{run['id']}/set_state", cancelling)
            ran = running.end()
            (run,) = asked(server, "flow_runs/filter")
            tasks = {one["name"]: one["state"]["type"] for one in asked(server, "task_runs/filter")}
        finally:
            server.stop()
    assert ran.code == 130, ran
    assert "stopped: cancelled in Prefect" in ran.err
    assert run["state"]["type"] == "CANCELLED"
    assert tasks == {"tiny/a:fill-mask#1": "COMPLETED", "tiny/b:fill-mask#1": "CANCELLED"}
    assert project.alone()


def rows(database: Path, query: str) -> list[tuple[str, ...]]:
    """What a server has recorded; nothing while its database has no tables or cannot be opened.

    Read-only and closed at once: a connection that may write removes the log of a killed server
    from under the one that starts.
    """
    with (
        suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as opened,
    ):
        return opened.execute(query).fetchall()
    return []


def shown(database: Path) -> list[tuple[str, ...]]:
    """The task runs that a server has recorded."""
    return rows(database, "SELECT name, state_type FROM task_run ORDER BY name")


def updates(database: Path) -> set[tuple[str, ...]]:
    """When a server last wrote the progress of the sweep."""
    return set(rows(database, "SELECT updated FROM artifact WHERE key IS NOT NULL"))


def servers(project: Project) -> list[psutil.Process]:
    return named(project.processes(), "flows.prefect.server_process")


def kill_server(project: Project) -> None:
    """Kill the server as soon as there is one."""
    assert eventually(lambda: bool(servers(project)), 60)
    (server,) = servers(project)
    server.kill()
    server.wait()


def test_our_server_is_started_again_when_it_dies(full_project: Project) -> None:
    """Killed while it starts and while it serves: the work does not notice, nothing is lost."""
    project = full_project
    database = project.home / "prefect" / "prefect.db"

    with waiting(project) as running:
        kill_server(project)
        assert eventually(lambda: len(shown(database)) == 2, 60)
        kill_server(project)
        before = updates(database)
        assert eventually(lambda: bool(updates(database) - before), 60)
        go(project)
        ran = running.end()
    check_built(project, ran, 16)
    assert NOTE not in ran.out
    assert shown(database) == [
        ("tiny/a:fill-mask#1", "COMPLETED"),
        ("tiny/b:fill-mask#1", "COMPLETED"),
    ]
    assert rows(database, "SELECT state_type FROM flow_run") == [("COMPLETED",)]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A volume without space."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small volume needs root on Linux")
    volume = tmp_path / "volume"
    volume.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(volume)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this system does not let us mount a tmpfs")
    try:
        yield volume
    finally:
        subprocess.run(["umount", "-l", str(volume)], check=True)


def test_a_full_disk_is_told_as_that(project: Project, full_disk: Path) -> None:
    project.catalog(model())
    arguments = ("sweep", "catalog.toml", "--stamp", "s1", "--json")
    ran = project.run(*arguments, plain=False, PREFECT_HOME=str(full_disk))
    check_built(project, ran)
    assert ran.lines()[-1]["unshown"] == f"the disk of {full_disk} is full"


@pytest.mark.slow
def test_a_run_is_shown_when_the_disk_has_space_again(project: Project, full_disk: Path) -> None:
    why = f"not shown in Prefect, the sweep continues: the disk of {full_disk} is full"
    with waiting(project, why, PREFECT_HOME=str(full_disk)) as running:
        subprocess.run(["mount", "-o", "remount,size=64m", str(full_disk)], check=True)
        assert eventually(lambda: len(shown(full_disk / "prefect.db")) == 2, 200)
        go(project)
        ran = running.end()
    check_built(project, ran, 16)
    assert NOTE not in ran.out
    assert {state for _name, state in shown(full_disk / "prefect.db")} == {"COMPLETED"}


def test_a_home_that_cannot_be_written_is_told_as_that(project: Project) -> None:
    project.catalog(model())
    (project.folder / "taken").write_text("a file")
    home = str(project.folder / "taken")
    ran = project.run("sweep", "catalog.toml", "--stamp", "s1", plain=False, PREFECT_HOME=home)
    check_built(project, ran)
    assert f"{NOTE}{home} cannot be written: " in ran.out


def test_without_anything_to_build_no_server_is_started(project: Project) -> None:
    project.catalog(model())
    project.ok("sweep", "catalog.toml", "--stamp", "s1")
    project.ok("sweep", "catalog.toml", "--stamp", "s2", "--if-changed", plain=False)
    assert project.statuses("s2") == {"unchanged": 8}
    assert not (project.home / "prefect").exists()
