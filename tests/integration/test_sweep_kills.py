"""kill -9 at any moment, of any process: running again ends in the same published set."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from state.records import Event, Kind
from tests.machine.timing import eventually
from tests.sweeps.command import Mill, Running, files_below, model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL")

KILLS = 50
CELLS = 32
SEED = 20260609


def catalog(mill: Mill, **last: Any) -> str:
    return mill.catalog(
        model("tiny/a"),
        model("tiny/b", components=["encoder", "decoder"]),
        model("tiny/c", size=300_000),
        model("tiny/d", **last),
    )


def new_mill(folder: Path) -> Mill:
    folder.mkdir()
    return Mill(folder)


def kill(mill: Mill, running: Running, *, everything: bool) -> None:
    """The sweep's process alone, or with all that it has started."""
    victims = mill.processes() if everything else []
    running.signal(signal.SIGKILL)
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()


def events(mill: Mill) -> list[Event]:
    with mill.state() as state:
        return list(state.events(mill.sweep("s1").id))


def check_published_once(mill: Mill) -> None:
    """Every cell became `published` by exactly one event, and no stage key was run twice."""
    became = Counter(
        event.cell
        for event in events(mill)
        if event.status == "published" and event.kind in {Kind.STATUS, Kind.SEEDED}
    )
    assert set(became.values()) == {1}
    assert len(became) == CELLS + 4
    assert set(mill.ran("s1").values()) <= {1}


def check_no_strays(mill: Mill, reference: Mill) -> None:
    """Nothing lies about in the home but what an undisturbed sweep leaves there too."""
    feed = mill.feed()
    named = {
        file.sha256
        for package, version in mill.published()
        for file in feed.files(package, version)
    }
    folder = mill.feed_folder
    assert {path.name for path in (folder / "blobs").rglob("*") if path.is_file()} == named
    assert files_below(folder / "tmp") <= {"commit.lock", "commit.new"}
    for part in ("store/actions", "store/blobs", "store/tmp", "store/notes/keys", "work"):
        assert files_below(mill.home / part) == files_below(reference.home / part), part
    assert files_below(mill.home / "logs/scratch") == {"gate.lock"}
    expected = {path.name for path in reference.home.iterdir()}
    assert {path.name for path in mill.home.iterdir()} <= expected | {"prefect"}


def undisturbed(tmp_path: Path, **last: Any) -> Mill:
    mill = new_mill(tmp_path / "reference")
    mill.ok("sweep", catalog(mill, **last), "--stamp", "s1")
    return mill


def survive(mill: Mill, chance: random.Random, kills: int) -> int:
    """Start, kill, start again, until a run ends by itself; returns the kills so far."""
    name = catalog(mill)
    while True:
        with mill.start("sweep", name, "--stamp", "s1", plain=True) as running:
            # What it has done counts, not the time that a busy machine takes for it.
            if not all(running.line() for _ in range(chance.randint(1, 10))):
                ran = running.end()
                assert not ran.err, ran.err
                assert ran.code == 0, ran.out
                return kills
            time.sleep(chance.uniform(0, 0.1))  # the moment of the kill is the test
            kill(mill, running, everything=kills % 2 == 0)
            kills += 1
            assert mill.alone(), "a child outlived its killed owner"


def test_a_sweep_that_is_killed_fifty_times(tmp_path: Path) -> None:
    reference = undisturbed(tmp_path)
    chance, kills, rounds = random.Random(SEED), 0, 0
    while kills < KILLS:
        mill = new_mill(tmp_path / f"round{rounds}")
        kills, rounds = survive(mill, chance, kills), rounds + 1
        assert mill.published() == reference.published()
        assert mill.statuses("s1") == {"published": CELLS}
        check_published_once(mill)
        check_no_strays(mill, reference)
    print(f"{kills} kills in {rounds} rounds")


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
    mill = new_mill(tmp_path / "mill")
    shutil.copytree(prefect_template, mill.home / "prefect")
    name = catalog(mill, **waits)
    with mill.start("sweep", name, "--stamp", "s1") as running:
        running.until("[20/32]")
        assert eventually(gate.exists, 60)
        with sqlite3.connect(mill.home / "prefect" / "prefect.db") as database:
            count = "SELECT count(*) FROM flow_run"
            assert eventually(lambda: database.execute(count).fetchone() == (1,), 90)
        kill(mill, running, everything=False)
        assert mill.alone()
    with mill.start("sweep", name, "--stamp", "s1") as running:
        with sqlite3.connect(mill.home / "prefect" / "prefect.db") as database:
            assert eventually(lambda: database.execute(count).fetchone() == (2,), 90)
        go.touch()
        assert running.end().code == 0
    assert mill.published() == reference.published()
    check_published_once(mill)
    check_no_strays(mill, reference)
    # A run that died is not shown as running for ever.
    with sqlite3.connect(mill.home / "prefect" / "prefect.db") as database:
        runs = database.execute("SELECT state_type FROM flow_run ORDER BY start_time").fetchall()
        tasks = database.execute("SELECT DISTINCT state_type FROM task_run").fetchall()
    assert {state for (state,) in tasks} <= {"CRASHED", "COMPLETED"}
    assert runs == [("CRASHED",), ("COMPLETED",)]


def hosts(mill: Mill) -> list[psutil.Process]:
    """Children that serve an engine or the checker."""
    found = []
    for process in mill.processes():
        with suppress(psutil.Error):
            if any(part.endswith("child.py") for part in process.cmdline()):
                found.append(process)
    return found


def test_killed_hosts_cost_a_cell_each_and_a_retry_makes_up_for_it(tmp_path: Path) -> None:
    reference = undisturbed(tmp_path)
    mill, chance = new_mill(tmp_path / "mill"), random.Random(SEED)
    command = ["sweep", catalog(mill), "--stamp", "s1"]
    for _kill in range(6):
        with mill.start(*command, plain=True) as running:
            # It may be over before a host is met; then there is nothing to kill.
            if eventually(lambda: bool(hosts(mill)) or running.popen.poll() is not None):
                for victim in hosts(mill)[: chance.randint(1, 2)]:
                    with suppress(psutil.NoSuchProcess):
                        victim.kill()
            ran = running.end()
            assert (ran.code in {0, 1}, ran.err) == (True, "")
        if ran.code == 0:
            break
        command = ["retry", "s1"]
    else:
        mill.ok("retry", "s1")
    assert mill.published() == reference.published()
    check_no_strays(mill, reference)
