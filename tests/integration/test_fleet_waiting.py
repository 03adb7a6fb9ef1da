"""Models that nobody alive may be given: status says why, and a machine that joins gets them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.fleet.lead import PARENT_FLOW
from flows.fleet.slot_runs import SLOT_FLOW
from flows.observe.unserved import NOT_TAKEN_UP
from tests.fleets.machines import Fleet, start_fleet, wait_for
from tests.sweeps.command import Project, model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name != "posix", reason="PostgreSQL is started by its POSIX tools"),
]


@pytest.fixture
def fleet(prefect_template: Path, tmp_path: Path) -> Iterator[Fleet]:
    with start_fleet(prefect_template, tmp_path) as made:
        yield made


def idle(fleet: Fleet, stamp: str) -> list[str]:
    """What `status` says of it; from a process whose end ends no other."""
    looker = Project(fleet.project.folder, fleet.project.env)
    return list(looker.ok("status", stamp, "--json", plain=False).json()["idle"])


def test_what_waits_is_told_until_a_machine_joins_that_can(fleet: Fleet) -> None:
    catalog = fleet.project.catalog(
        model("tiny/plain"),
        model("tiny/strange", extra="remote_code = true"),
        model("tiny/lab", extra='needs = ["lab"]'),
    )
    an_order_without_a_worker(fleet, catalog)
    fleet.machine("a")
    fleet.ready("a")
    with fleet.sweep(catalog, "s1", "--allow-remote-code", "--target", "mlas_cpu") as order:
        order.until("1 cell waits for a machine that offers")
        wait_for(lambda: fleet.project.statuses("s1").get("published") == 1)
        wait_for(lambda: "2 cells open, no process is working" in idle(fleet, "s1"))
        said = idle(fleet, "s1")
        assert (
            "1 cell waits for a machine that offers remote-code (tiny/strange:fill-mask@mlas_cpu)"
            in said
        )
        assert "1 cell waits for a machine that offers lab (tiny/lab:fill-mask@mlas_cpu)" in said
        assert any("--allow-remote-code" in line for line in said)
        fleet.machine("b", "--allow-remote-code", "--has", "lab", "--sweeps", "0")
        ran = order.end()
    assert (ran.code, ran.err) == (0, ""), ran
    assert fleet.project.statuses("s1") == {"published": 3}
    # The parent of the order that was taken back has been started since, and left it alone.
    assert fleet.project.statuses("s0") == {"cancelled": 3}
    assert idle(fleet, "s1") == []


def an_order_without_a_worker(fleet: Fleet, catalog: str) -> None:
    with fleet.sweep(catalog, "s0", "--target", "mlas_cpu") as order:
        order.until("on the fleet mill")
        assert idle(fleet, "s0") == ["3 cells open, no process is working", NOT_TAKEN_UP]
        Project(fleet.project.folder, fleet.project.env).ok("cancel", "s0", plain=False)
        ran = order.end()
    assert ran.code == 130, ran
    assert fleet.project.statuses("s0") == {"cancelled": 3}


def test_a_machine_whose_slots_fail_at_once_is_told_of_and_comes_back(fleet: Fleet) -> None:
    catalog = fleet.project.catalog(model("tiny/plain"))
    fleet.machine("a")
    fleet.ready("a")
    logs, aside = fleet.project.folder / "home-a" / "logs", fleet.project.folder / "aside"
    logs.rename(aside)
    logs.write_text("in the way")
    with fleet.sweep(catalog, "s1", "--target", "mlas_cpu") as order:
        order.until("slots fail: cannot make the folder")
        assert any("repair the machine that offers" in line for line in idle(fleet, "s1"))
        logs.unlink()
        aside.rename(logs)
        ran = order.end()
    assert (ran.code, ran.err) == (0, ""), ran
    assert fleet.project.statuses("s1") == {"published": 1}
    ended = [run["state_type"] for run in fleet.flow_runs(SLOT_FLOW, fleet.project.sweep("s1").id)]
    assert 3 <= ended.count("FAILED") <= 8, ended
    assert idle(fleet, "s1") == []


def test_a_sweep_goes_on_whatever_prefect_believes_of_its_runs(fleet: Fleet) -> None:
    """As when an outage has cost the heartbeats of living runs."""
    gate = fleet.project.folder / "gate"
    catalog = fleet.project.catalog(model("tiny/plain", act={"optimize": f"wait:{gate}"}))
    fleet.machine("a")
    fleet.ready("a")
    with fleet.sweep(catalog, "s1", "--target", "mlas_cpu") as order:
        wait_for(gate.exists)
        sweep = fleet.project.sweep("s1").id
        for flow in (SLOT_FLOW, PARENT_FLOW):
            (run,) = (one for one in fleet.flow_runs(flow, sweep) if one["state_type"] == "RUNNING")
            lost = {"type": "CRASHED", "name": "Crashed", "message": "no heartbeat"}
            with fleet.api() as api:
                path = f"/flow_runs/{run['id']}/set_state"
                api.post(path, json={"state": lost, "force": True}).raise_for_status()
        gate.with_name("gate.go").touch()
        ran = order.end()
    assert (ran.code, ran.err) == (0, ""), ran
    assert fleet.project.statuses("s1") == {"published": 1}
    assert fleet.lost("s1") == []
