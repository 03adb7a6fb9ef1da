"""The state on one machine, used by real processes that are killed, stopped and raced."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

import psutil
import pytest

from matrix.status import Status
from state.errors import LeaseLost
from state.records import Facts, Lease, Owner, Remaining
from state.state import State, open_state
from tests.machine.timing import patient
from tests.states.child import DRAIN, ROOT, Child
from tests.states.samples import ALIVE, TREE, begin, cell, model, rows, status, take

HOLDER = """
lease = state.lease(sweep, me, float(hear()))
state.record(lease, sweep, lease.model + "@qnn_npu", Status.BUILDING)
say(lease.model, lease.token)
hear()
try:
    facts = Facts(tree="b" * 64)
    state.record(lease, sweep, lease.model + "@qnn_npu", Status.PUBLISHED, facts)
    say("recorded")
except Exception as error:
    say(type(error).__name__)
hear()
"""


IN_TRANSACTION = """
with state.database.write() as connection:
    connection.exec_driver_sql("UPDATE outcome SET status = 'cancelled', ended_at = 1")
    connection.exec_driver_sql("DELETE FROM event")
    say("written")
    hear()
"""


@contextmanager
def child(script: str, where: Path | str, sweep: int, name: str = "child") -> Iterator[Child]:
    started = Child(script, where, sweep, name)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def state(path: Path) -> Iterator[State]:
    with open_state(path) as opened:
        yield opened


def test_processes_drain_one_sweep_without_overlap(state: State, path: Path) -> None:
    sweep = begin(state, rows(60))
    drains = [Child(DRAIN, path, sweep.id, f"slot-{number}") for number in range(3)]
    try:
        for drain in drains:
            assert drain.hear() == "ready"
        for drain in drains:
            drain.say()
        taken = [name for drain in drains for name in drain.rest()]
    finally:
        for drain in drains:
            drain.end()
    assert sorted(taken) == sorted(model(number) for number in range(60))
    assert list(state.statuses(sweep.id).values()) == [Status.PUBLISHED] * 120
    assert state.remaining(sweep.id) == Remaining(done=60)


def test_a_killed_holder_is_taken_over_at_once(state: State, path: Path) -> None:
    sweep = begin(state, rows(1))
    with child(HOLDER, path, sweep.id) as holder:
        holder.say(3600)
        name, token = holder.hear().split()
        assert state.lease(sweep.id, ALIVE, 60) is None, "it lives"
        holder.process.kill()
        holder.process.wait()
        taken = take(state, sweep)
    assert taken.model == name
    assert taken.token > int(token)
    assert status(state, sweep) is Status.PLANNED


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no zombies")
def test_a_killed_holder_that_nobody_waited_for_is_dead_all_the_same(
    state: State, path: Path
) -> None:
    sweep = begin(state, rows(1))
    with child(HOLDER, path, sweep.id) as holder:
        holder.say(3600)
        holder.hear()
        # Killed, but not waited for: a zombie still has a pid and a start time.
        os.kill(holder.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, holder.process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(holder.process.pid).status() == psutil.STATUS_ZOMBIE
        take(state, sweep)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP")
def test_a_stopped_holder_is_refused_when_it_continues(state: State, path: Path) -> None:
    sweep = begin(state, rows(1))
    with child(HOLDER, path, sweep.id) as holder:
        holder.say(0)
        holder.hear()
        os.kill(holder.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, holder.process.pid, os.WSTOPPED | os.WNOWAIT)  # not at once
        current = take(state, sweep)
        os.kill(holder.process.pid, signal.SIGCONT)
        holder.say()
        assert holder.hear() == LeaseLost.__name__
    assert status(state, sweep) is Status.PLANNED
    state.record(current, sweep.id, cell(), Status.PUBLISHED, Facts(tree=TREE))


def test_a_kill_inside_a_transaction_changes_nothing(state: State, path: Path) -> None:
    sweep = begin(state)
    before = list(state.events(sweep.id))
    with child(IN_TRANSACTION, path, sweep.id) as writer:
        assert writer.hear() == "written"
        assert list(state.statuses(sweep.id).values()) == [Status.PLANNED] * 4, (
            "readers are not disturbed"
        )
        writer.process.kill()
        writer.process.wait()
    assert list(state.events(sweep.id)) == before
    state.record(take(state, sweep), sweep.id, cell(), Status.BUILDING)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_repeated_kills_lead_to_the_same_end(state: State, path: Path) -> None:
    """Every life of the process publishes something and dies at the next report."""
    sweep = begin(state, rows(30))
    for life in range(12):
        with child(DRAIN, path, sweep.id) as drain:
            assert drain.hear() == "ready"
            drain.say()
            for _ in range(life % 3 + 1):
                drain.hear()
            drain.process.kill()
        begin(state, rows(30))
    with child(DRAIN, path, sweep.id) as drain:
        drain.say()
        drain.rest()
    assert list(state.statuses(sweep.id).values()) == [Status.PUBLISHED] * 60
    said = [one.cell for one in state.events(sweep.id) if one.status == "published"]
    assert len(said) == len(set(said)) == 60, "nothing was published twice"
    assert state.leases() == []


def test_killed_while_it_makes_the_file(tmp_path: Path) -> None:
    """Whenever a first start dies, the next one finds no file or a whole one."""
    script = "import sys\nfrom state.state import open_state\nprint(flush=True)\n"
    script += "open_state(sys.argv[1]).close()\nprint('open', flush=True)\nsys.stdin.read()"
    for attempt in range(8):
        path = tmp_path / f"{attempt}.db"
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        output = cast("IO[bytes]", process.stdout)
        output.readline()
        while not path.exists() and process.poll() is None:
            pass
        for _ in range(attempt * 300):  # a little later each time
            path.exists()
        process.kill()
        process.communicate()
        with open_state(path) as state:
            assert begin(state).id


@pytest.mark.skipif(sys.platform == "win32", reason="folder modes mean nothing on Windows")
@pytest.mark.parametrize("existing", [False, True])
def test_a_read_only_folder_is_refused(existing: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if existing:
            with open_state(folder / "state.db") as state:
                begin(state)
            (folder / "state.db").chmod(0o444)
        folder.chmod(0o555)
        script = (
            "import os, sys\n"
            "from state.errors import StateError\n"
            "from state.state import open_state\n"
            "from state.records import Kind\n"
            "if os.geteuid() == 0: os.setuid(65534)\n"
            "try:\n"
            "    with open_state(sys.argv[1]) as state: state.note(1, Kind.NOTICE)\n"
            "except StateError as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder / "state.db")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=patient(60),
        )
        assert done.returncode == 0, done.stderr
        assert "state.db cannot be" in done.stdout
        folder.chmod(0o755)


def test_a_recycled_pid_is_another_process(state: State) -> None:
    sweep = begin(state, rows(1))
    here = Owner.here("slot")
    earlier = Owner("slot", replace(here.process, started="1"))
    stale = state.lease(sweep.id, earlier, 3600)
    assert isinstance(stale, Lease)
    assert take(state, sweep).token > stale.token
