"""Ctrl-C and SIGTERM: everything stops within seconds, nothing runs on, and a resume goes on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from matrix.status import Status
from tests.machine.timing import eventually
from tests.sweeps.command import INTERRUPTED, Project, Ran, model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

KEPT = "what is built is kept: modelmill resume s1\n"
ABANDONED = "modelmill: interrupted; what did not end in time was killed\n"
PROMISE = 5.0
SLACK = 25.0
"""The machine may be busy; without a stop these sweeps would never end."""


def halfway(project: Project) -> str:
    """A catalog whose second model waits in a stage; its first has been published by then."""
    waiting = project.folder / "waiting"
    stuck = {"quantize": f"wait:{waiting}"}
    return project.catalog(
        model("tiny/a"),
        # Another weight, or its stages would be those of the first.
        model("tiny/b", act=stuck, journal=str(project.folder / "journal")),
        model("tiny/c"),
    )


def at_work(project: Project) -> bool:
    return (project.folder / "waiting").exists() and "published" in project.statuses("s1")


def check_stopped(project: Project, ran: Ran) -> None:
    """One line for a person, no traceback, nothing left of it but what a resume needs."""
    assert (ran.code, ran.err) == (130, KEPT)
    assert "Traceback" not in ran.out
    assert "prefect" not in (ran.out + ran.err).lower()
    assert project.alone()
    outcomes = project.outcomes("s1")
    assert {one.status for one in outcomes.values()} == {Status.PLANNED, Status.PUBLISHED}
    assert project.sweep("s1").exit_code == 130
    with project.state() as state:
        assert state.leases() == []


def resume_to_the_end(project: Project, *, plain: bool) -> None:
    before = project.published()
    with project.start("resume", plain=plain) as running:
        # However short the rest is: Prefect's server, which starts beside it, is to see some of it.
        assert plain or eventually(lambda: len(flow_runs(project.home)) == 2, 90)
        (project.folder / "waiting.go").touch()
        ran = running.end()
    assert (ran.code, ran.err) == (0, ""), ran
    assert "24 published" in ran.out
    assert before.items() <= project.published().items()
    assert set(project.ran("s1").values()) == {1}


def flow_runs(home: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database, database:
        return database.execute(
            "SELECT name, state_type FROM flow_run ORDER BY start_time"
        ).fetchall()


def task_runs(home: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(home / "prefect" / "prefect.db")) as database, database:
        return database.execute("SELECT name, state_type FROM task_run ORDER BY name").fetchall()


def test_ctrl_c_on_the_terminal(full_project: Project) -> None:
    """The whole command, with Prefect; the signal reaches the whole group, as a terminal's does."""
    project = full_project
    with project.start("sweep", halfway(project), "--stamp", "s1") as running:
        running.until("9/24] published")
        assert eventually(lambda: at_work(project))
        # The server starts beside the work, in its own time.
        assert eventually(lambda: bool(flow_runs(project.home)), 90)
        running.signal(signal.SIGINT, group=True)
        ran = running.end(PROMISE + SLACK)
        check_stopped(project, ran)
    assert project.journal()
    resume_to_the_end(project, plain=False)
    # Nothing of either run is lost from Prefect's history, and nothing is said to run for ever.
    states = [state for name, state in flow_runs(project.home)]
    assert len(states) == 2
    assert states[0] in {"CANCELLED", "CRASHED"}
    assert states[1] == "COMPLETED"
    completed = [name for name, state in task_runs(project.home) if state == "COMPLETED"]
    assert {name.partition("#")[0] for name in completed} == {
        "tiny/a:fill-mask",
        "tiny/b:fill-mask",
        "tiny/c:fill-mask",
    }
    assert {state for _name, state in task_runs(project.home)} <= {"COMPLETED", "CANCELLED"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_changes_nothing(project: Project, number: signal.Signals) -> None:
    with project.start("sweep", halfway(project), "--stamp", "s1", plain=True) as running:
        running.until("9/24] published")
        assert eventually(lambda: at_work(project))
        for _again in range(3):
            running.signal(number, group=number is signal.SIGINT)
        ran = running.end(PROMISE + SLACK)
        check_stopped(project, ran)
    resume_to_the_end(project, plain=True)


def test_sigterm_while_the_server_starts(full_project: Project) -> None:
    project = full_project
    with project.start("sweep", halfway(project), "--stamp", "s1") as running:
        running.until("sweep s1")
        running.signal(signal.SIGTERM)
        ran = running.end(PROMISE + SLACK)
    assert ran.code == 130
    # On a machine so busy that importing Prefect takes seconds, the promise comes first.
    assert ran.err in {KEPT, ABANDONED}
    assert project.alone()
    assert set(project.statuses("s1")) == {"planned"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_in_its_first_moments_ends_with_a_word(
    project: Project, number: signal.Signals
) -> None:
    with project.start("sweep", halfway(project), "--stamp", "s1") as running:
        running.until("planning the sweep")
        running.signal(number)
        ran = running.end(PROMISE + SLACK)
    assert ran.code == 130
    assert ran.err in {INTERRUPTED, KEPT, ABANDONED}
    assert project.alone()


def test_a_feed_that_never_answers_does_not_hold_the_process(project: Project) -> None:
    (project.folder / "remote.json").write_text(json.dumps({"hang": "versions"}))
    feed = f"flaky:{project.folder / 'remote'}"
    with project.start("sweep", halfway(project), "--stamp", "s1", "--feed", feed) as running:
        calls = project.folder / "remote.calls"
        assert eventually(lambda: calls.exists() and "versions" in calls.read_text())
        running.signal(signal.SIGTERM)
        ran = running.end(PROMISE + SLACK)
    assert (ran.code, ran.err) == (130, ABANDONED)
    assert project.alone()


def test_nothing_is_lost_of_what_was_being_published(project: Project) -> None:
    """The stop comes while a package is on its way; whether it arrived is asked of the feed."""
    (project.folder / "remote.json").write_text(json.dumps({"hang": "publish"}))
    arguments = ("--feed", f"flaky:{project.folder / 'remote'}", "--jobs", "1")
    catalog = project.catalog(model("tiny/a"))
    with project.start("sweep", catalog, "--stamp", "s1", *arguments, plain=True) as running:
        calls = project.folder / "remote.calls"
        assert eventually(lambda: calls.exists() and "publish" in calls.read_text())
        running.signal(signal.SIGINT)
        ran = running.end(PROMISE + SLACK)
    assert (ran.code, "Traceback" in ran.err) == (130, False)
    assert project.alone()
    (project.folder / "remote.json").unlink()
    project.ok("resume", *arguments)
    assert project.statuses("s1") == {"published": 8}
    assert set(project.ran("s1").values()) == {1}
