"""`status --watch` from another process than the sweep's, on the same state."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.machine.timing import eventually
from tests.sweeps.command import Project, model


def test_a_sweep_is_followed_from_another_process_to_its_end(project: Project) -> None:
    gate = project.folder / "gate"
    project.catalog(model(act={"export": f"wait:{gate}"}))
    with project.start("sweep", "catalog.toml", "--stamp", "seen", "--json", plain=True) as sweep:
        sweep.until('"export begins"')  # what the engine says comes through while it is at it
        with Project(project.folder).start("status", "seen", "--watch", "--json") as watch:
            watch.until('"export begins"')
            gate.with_name("gate.go").touch()
            lines = watch.end().lines()
        assert sweep.end().code == 0
    activity = next(one for one in lines if one["type"] == "activity")
    assert activity["cell"] == "tiny/a:fill-mask@export"
    with project.state() as state:
        told = [one for one in state.events(project.sweep("seen").id) if "begins" in str(one.data)]
    assert told == [], "no event is written for it"
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["exit_code"] == 0
    assert lines[-1]["counts"] == {"published": 8}
    assert project.alone()


def test_a_sweep_that_is_over_is_told_at_once(project: Project) -> None:
    project.catalog(model())
    project.ok("sweep", "catalog.toml", "--stamp", "over")
    ran = project.ok("status", "--watch")
    assert ran.out.splitlines()[-1] == "sweep over: 8 cells: 8 published"


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent as SIGINT")
def test_ctrl_c_only_looks_away(project: Project) -> None:
    gate = project.folder / "gate"
    project.catalog(model(act={"export": f"wait:{gate}"}))
    with project.start("sweep", "catalog.toml", "--stamp", "seen", plain=True) as sweep:
        assert eventually(gate.exists, 60)
        with Project(project.folder).start("status", "seen", "--watch") as watch:
            watch.until("sweep seen -> ")
            watch.signal(signal.SIGINT)
            looked = watch.end()
        gate.with_name("gate.go").touch()
        assert sweep.end().code == 0
    assert looked.code == 0, looked
    assert "planned" in looked.out
