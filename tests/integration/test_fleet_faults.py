"""A sweep on a fleet that is cancelled, taken up, and loses slots: what always runs of the faults.

One test, because servers and workers are what it costs; `test_fleet_faults_more.py` has the rest.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from matrix.errors import Exit
from tests.fleets.machines import LIMIT, Fleet, gone, named, start_fleet, wait_for
from tests.sweeps.command import model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]
A, B = "tiny/a", "tiny/b"


def test_a_sweep_that_is_cancelled_and_then_loses_slots(
    prefect_template: Path, tmp_path: Path
) -> None:
    with start_fleet(prefect_template, tmp_path / "fleet", MODELMILL_HEARTBEAT="3") as fleet:
        fleet.machine("a")
        fleet.machine("b", "--sweeps", "0")
        fleet.ready("a", "b")
        child, hold = fleet.project.folder / "child", fleet.project.folder / "hold"
        calm = fleet.project.folder / "calm"
        act = {"quantize": f"until:{calm}:spawn:{child}"}
        catalog = fleet.project.catalog(
            model(A, act=act), model(B, act={"quantize": f"wait:{hold}"})
        )
        cancelled(fleet, catalog, child)
        calm.touch()
        hold.unlink(missing_ok=True)
        stopped_and_killed(fleet, hold)
        fleet.check(catalog, "s1")
        drained(fleet)


def cancelled(fleet: Fleet, catalog: str, child: Path) -> None:
    """`modelmill cancel` ends whole process trees, and leaves a sweep to be resumed."""
    with fleet.sweep(catalog, "s1") as order:
        wait_for(lambda: child.exists() and bool(child.read_text()))
        grandchild = int(child.read_text())
        assert psutil.pid_exists(grandchild)
        ran = fleet.run("cancel", "s1")
        assert (ran.code, ran.err) == (0, ""), ran
        wait_for(lambda: gone(grandchild))
        ran = order.end(LIMIT)
    assert ran.code == Exit.INTERRUPTED, ran
    machines = fleet.machines.values()
    wait_for(lambda: not any(named(one.project.processes(), "child.py") for one in machines))
    assert fleet.project.holders("s1") == []
    assert fleet.project.statuses("s1").get("cancelled")


def stopped_and_killed(fleet: Fleet, hold: Path) -> None:
    """One slot stops beyond its lease, the next is killed; what the first has made is refused."""
    with fleet.project.start(*fleet.project.fleet("resume", "s1"), plain=False) as order:
        wait_for(hold.exists)
        first = fleet.holder("s1", B)
        os.kill(first.pid, signal.SIGSTOP)
        second = fleet.holder("s1", B, after=first.token)
        os.kill(second.pid, signal.SIGKILL)
        third = fleet.holder("s1", B, after=second.token)
        assert len({first.pid, second.pid, third.pid}) == 3
        # What the first one waited for is made now, and lies ready when it wakes up.
        Path(f"{hold}.go").touch()
        fleet.wait_until("s1", published=16)
        os.kill(first.pid, signal.SIGCONT)
        wait_for(lambda: gone(first.pid))
        ran = order.end(LIMIT)
    assert (ran.code, ran.err) == (0, ""), ran
    why = {one.token: (one.data or {})["why"] for one in fleet.lost("s1")}
    assert (why[first.token], why[second.token]) == ("expired", "process gone")


def drained(fleet: Fleet) -> None:
    """Workers that are told to stop leave nothing behind."""
    for machine in fleet.machines.values():
        machine.running.signal(signal.SIGTERM)
    for machine in fleet.machines.values():
        ran = machine.running.end(LIMIT)
        assert (ran.code, ran.err) == (0, ""), ran
        assert machine.project.alone()
