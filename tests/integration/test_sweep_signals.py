"""Ctrl-C and SIGTERM: everything stops within seconds, nothing runs on, and a resume goes on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from matrix.status import Status
from tests.machine.timing import eventually
from tests.sweeps.command import Mill, Ran, model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

KEPT = "what is built is kept: modelmill resume s1\n"
ABANDONED = "modelmill: interrupted; what did not end in time was killed\n"
PROMISE = 5.0
SLACK = 25.0
"""The machine may be busy; without a stop these sweeps would never end."""


def halfway(mill: Mill) -> str:
    """A catalog whose second model waits in a stage; its first has been published by then."""
    waiting = mill.folder / "waiting"
    stuck = {"quantize": f"wait:{waiting}"}
    return mill.catalog(
        model("tiny/a"),
        # Another weight, or its stages would be those of the first.
        model("tiny/b", act=stuck, journal=str(mill.folder / "journal")),
        model("tiny/c"),
    )


def at_work(mill: Mill) -> bool:
    return (mill.folder / "waiting").exists() and "published" in mill.statuses("s1")


def check_stopped(mill: Mill, ran: Ran) -> None:
    """One line for a person, no traceback, nothing left of it but what a resume needs."""
    assert (ran.code, ran.err) == (130, KEPT)
    assert "Traceback" not in ran.out
    assert "prefect" not in (ran.out + ran.err).lower()
    assert mill.alone()
    outcomes = mill.outcomes("s1")
    assert {one.status for one in outcomes.values()} == {Status.PLANNED, Status.PUBLISHED}
    assert mill.sweep("s1").exit_code == 130
    with mill.state() as state:
        assert state.leases() == []


def resume_to_the_end(mill: Mill, *, plain: bool) -> None:
    before = mill.published()
    with mill.start("resume", plain=plain) as running:
        # However short the rest is: Prefect's server, which starts beside it, is to see some of it.
        assert plain or eventually(lambda: len(flow_runs(mill.home)) == 2, 90)
        (mill.folder / "waiting.go").touch()
        ran = running.end()
    assert (ran.code, ran.err) == (0, ""), ran
    assert "24 published" in ran.out
    assert before.items() <= mill.published().items()
    assert set(mill.ran("s1").values()) == {1}


def flow_runs(home: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(home / "prefect" / "prefect.db") as database:
        return database.execute(
            "SELECT name, state_type FROM flow_run ORDER BY start_time"
        ).fetchall()


def task_runs(home: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(home / "prefect" / "prefect.db") as database:
        return database.execute("SELECT name, state_type FROM task_run ORDER BY name").fetchall()


def test_ctrl_c_on_the_terminal(full_mill: Mill) -> None:
    """The whole command, with Prefect; the signal reaches the whole group, as a terminal's does."""
    mill = full_mill
    with mill.start("sweep", halfway(mill), "--stamp", "s1") as running:
        running.until("9/24] published")
        assert eventually(lambda: at_work(mill))
        # The server starts beside the work, in its own time.
        assert eventually(lambda: bool(flow_runs(mill.home)), 90)
        running.signal(signal.SIGINT, group=True)
        ran = running.end(PROMISE + SLACK)
        check_stopped(mill, ran)
    assert mill.journal()
    resume_to_the_end(mill, plain=False)
    # Nothing of either run is lost from Prefect's history, and nothing is said to run for ever.
    states = [state for name, state in flow_runs(mill.home)]
    assert len(states) == 2
    assert states[0] in {"CANCELLED", "CRASHED"}
    assert states[1] == "COMPLETED"
    completed = [name for name, state in task_runs(mill.home) if state == "COMPLETED"]
    assert {name.partition("#")[0] for name in completed} == {
        "tiny/a:fill-mask",
        "tiny/b:fill-mask",
        "tiny/c:fill-mask",
    }
    assert {state for _name, state in task_runs(mill.home)} <= {"COMPLETED", "CANCELLED"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_changes_nothing(mill: Mill, number: signal.Signals) -> None:
    with mill.start("sweep", halfway(mill), "--stamp", "s1", plain=True) as running:
        running.until("9/24] published")
        assert eventually(lambda: at_work(mill))
        for _again in range(3):
            running.signal(number, group=number is signal.SIGINT)
        ran = running.end(PROMISE + SLACK)
        check_stopped(mill, ran)
    resume_to_the_end(mill, plain=True)


def test_sigterm_while_the_server_starts(full_mill: Mill) -> None:
    mill = full_mill
    with mill.start("sweep", halfway(mill), "--stamp", "s1") as running:
        running.until("sweep s1")
        running.signal(signal.SIGTERM)
        ran = running.end(PROMISE + SLACK)
    assert ran.code == 130
    # On a machine so busy that importing Prefect takes seconds, the promise comes first.
    assert ran.err in {KEPT, ABANDONED}
    assert mill.alone()
    assert set(mill.statuses("s1")) == {"planned"}


def test_a_feed_that_never_answers_does_not_hold_the_process(mill: Mill) -> None:
    (mill.folder / "remote.json").write_text(json.dumps({"hang": "versions"}))
    feed = f"flaky:{mill.folder / 'remote'}"
    with mill.start("sweep", halfway(mill), "--stamp", "s1", "--feed", feed) as running:
        calls = mill.folder / "remote.calls"
        assert eventually(lambda: calls.exists() and "versions" in calls.read_text())
        running.signal(signal.SIGTERM)
        ran = running.end(PROMISE + SLACK)
    assert (ran.code, ran.err) == (130, ABANDONED)
    assert mill.alone()


def test_nothing_is_lost_of_what_was_being_published(mill: Mill) -> None:
    """The stop comes while a package is on its way; whether it arrived is asked of the feed."""
    (mill.folder / "remote.json").write_text(json.dumps({"hang": "publish"}))
    arguments = ("--feed", f"flaky:{mill.folder / 'remote'}", "--jobs", "1")
    catalog = mill.catalog(model("tiny/a"))
    with mill.start("sweep", catalog, "--stamp", "s1", *arguments, plain=True) as running:
        calls = mill.folder / "remote.calls"
        assert eventually(lambda: calls.exists() and "publish" in calls.read_text())
        running.signal(signal.SIGINT)
        ran = running.end(PROMISE + SLACK)
    assert (ran.code, "Traceback" in ran.err) == (130, False)
    assert mill.alone()
    (mill.folder / "remote.json").unlink()
    mill.ok("resume", *arguments)
    assert mill.statuses("s1") == {"published": 8}
    assert set(mill.ran("s1").values()) == {1}
