"""kill -9 at any moment, of any process: running again ends in the same published set."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from state.records import Event, Kind
from tests.machine.timing import eventually
from tests.sweeps.command import Project, Running, files_below, model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL")

CELLS = 32
SEED = 20260609


def catalog(project: Project, **last: Any) -> str:
    return project.catalog(
        model("tiny/a"),
        model("tiny/b", components=["encoder", "decoder"]),
        model("tiny/c", size=300_000),
        model("tiny/d", **last),
    )


def new_project(folder: Path) -> Project:
    folder.mkdir()
    return Project(folder)


def kill(project: Project, running: Running, *, everything: bool) -> None:
    """The sweep's process alone, or with all that it has started."""
    victims = project.processes() if everything else []
    running.signal(signal.SIGKILL)
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()


def events(project: Project) -> list[Event]:
    with project.state() as state:
        return list(state.events(project.sweep("s1").id))


def check_published_once(project: Project) -> None:
    """Every cell became `published` by exactly one event, and no stage key was run twice."""
    became = Counter(
        event.cell
        for event in events(project)
        if event.status == "published" and event.kind in {Kind.STATUS, Kind.SEEDED}
    )
    assert set(became.values()) == {1}
    assert len(became) == CELLS + 4
    assert set(project.ran("s1").values()) <= {1}


def check_no_strays(project: Project, reference: Project) -> None:
    """Nothing lies about in the home but what an undisturbed sweep leaves there too."""
    feed = project.feed()
    named = {
        file.sha256
        for package, version in project.published()
        for file in feed.files(package, version)
    }
    folder = project.feed_folder
    assert {path.name for path in (folder / "blobs").rglob("*") if path.is_file()} == named
    assert files_below(folder / "tmp") <= {"commit.lock", "commit.new"}
    for part in ("store/actions", "store/blobs", "store/tmp", "store/notes/keys", "work"):
        assert files_below(project.home / part) == files_below(reference.home / part), part
    assert files_below(project.home / "logs/scratch") == {"gate.lock"}
    expected = {path.name for path in reference.home.iterdir()}
    assert {path.name for path in project.home.iterdir()} <= expected | {"prefect"}


def undisturbed(tmp_path: Path, **last: Any) -> Project:
    project = new_project(tmp_path / "reference")
    project.ok("sweep", catalog(project, **last), "--stamp", "s1")
    return project


def survive(project: Project, chance: random.Random, kills: int) -> int:
    """Start, kill, start again, until a run ends by itself; returns the kills so far."""
    name = catalog(project)
    while True:
        with project.start("sweep", name, "--stamp", "s1", plain=True) as running:
            # What it has done counts, not the time that a busy machine takes for it.
            if not all(running.line() for _ in range(chance.randint(1, 20))):
                ran = running.end()
                assert not ran.err, ran.err
                assert ran.code == 0, ran.out
                return kills
            time.sleep(chance.uniform(0, 0.1))  # the moment of the kill is the test
            kill(project, running, everything=kills % 2 == 0)
            kills += 1
            assert project.alone(), "a child outlived its killed owner"


@pytest.mark.parametrize(
    "least", [10, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_a_sweep_that_is_killed_again_and_again(tmp_path: Path, least: int) -> None:
    reference = undisturbed(tmp_path)
    chance, kills, rounds = random.Random(SEED), 0, 0
    while kills < least:
        project = new_project(tmp_path / f"round{rounds}")
        kills, rounds = survive(project, chance, kills), rounds + 1
        assert project.published() == reference.published()
        assert project.statuses("s1") == {"published": CELLS}
        check_published_once(project)
        check_no_strays(project, reference)
    print(f"{kills} kills in {rounds} rounds")


@pytest.mark.slow
def test_the_whole_command_is_killed_with_its_server(
    tmp_path: Path, prefect_template: Path
) -> None:
    # Something must be left to do at the moment of the kill, however late that comes.
    gate, go = tmp_path / "gate", tmp_path / "gate.go"
    waits = {"act": {"export": f"wait:{gate}"}}
    go.touch()
    reference = undisturbed(tmp_path, **waits)
    go.unlink()
    gate.unlink()
    project = new_project(tmp_path / "project")
    shutil.copytree(prefect_template, project.home / "prefect")
    name = catalog(project, **waits)
    with project.start("sweep", name, "--stamp", "s1") as running:
        running.until("[20/32]")
        assert eventually(gate.exists, 60)
        with (
            closing(sqlite3.connect(project.home / "prefect" / "prefect.db")) as database,
            database,
        ):
            count = "SELECT count(*) FROM flow_run"
            assert eventually(lambda: database.execute(count).fetchone() == (1,), 90)
        kill(project, running, everything=False)
        assert project.alone()
    with project.start("sweep", name, "--stamp", "s1") as running:
        with (
            closing(sqlite3.connect(project.home / "prefect" / "prefect.db")) as database,
            database,
        ):
            assert eventually(lambda: database.execute(count).fetchone() == (2,), 90)
        go.touch()
        assert running.end().code == 0
    assert project.published() == reference.published()
    check_published_once(project)
    check_no_strays(project, reference)
    # A run that died is not shown as running for ever.
    with closing(sqlite3.connect(project.home / "prefect" / "prefect.db")) as database, database:
        runs = database.execute("SELECT state_type FROM flow_run ORDER BY start_time").fetchall()
        tasks = database.execute("SELECT DISTINCT state_type FROM task_run").fetchall()
    assert {state for (state,) in tasks} <= {"CRASHED", "COMPLETED"}
    assert runs == [("CRASHED",), ("COMPLETED",)]


def hosts(project: Project) -> list[psutil.Process]:
    """Children that serve an engine or the checker."""
    found = []
    for process in project.processes():
        with suppress(psutil.Error):
            if any(part.endswith("child.py") for part in process.cmdline()):
                found.append(process)
    return found


def test_killed_hosts_cost_a_cell_each_and_a_retry_makes_up_for_it(tmp_path: Path) -> None:
    reference = undisturbed(tmp_path)
    project, chance = new_project(tmp_path / "project"), random.Random(SEED)
    command = ["sweep", catalog(project), "--stamp", "s1"]
    for _kill in range(6):
        with project.start(*command, plain=True) as running:
            # It may be over before a host is met; then there is nothing to kill.
            if eventually(lambda: bool(hosts(project)) or running.popen.poll() is not None):
                for victim in hosts(project)[: chance.randint(1, 2)]:
                    with suppress(psutil.NoSuchProcess):
                        victim.kill()
            ran = running.end()
            assert (ran.code in {0, 1}, ran.err) == (True, "")
        if ran.code == 0:
            break
        command = ["retry", "s1"]
    else:
        project.ok("retry", "s1")
    assert project.published() == reference.published()
    check_no_strays(project, reference)
