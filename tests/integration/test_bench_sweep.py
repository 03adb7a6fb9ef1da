"""`sweep --bench` on a real model and runtime: killed while it measures, resumed, not repeated."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from state.records import BenchState, Measurement
from tests.machine.timing import eventually
from tests.sweeps.command import Project

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.name != "posix", reason="SIGKILL"),
]

CELL = "demo/bert-tiny:text-classification@mlas_cpu"
SWEEP = ("sweep", "demo", "--only", CELL, "--jobs", "1", "--bench", "--sessions", "1")
QUICK = ("--iterations", "20", "--warmup", "1")


def measurements(project: Project) -> list[Measurement]:
    with project.state() as state:
        return state.measurements()


def is_measuring(project: Project) -> bool:
    if not (project.home / "state.db").exists():
        return False
    with project.state() as state:
        info = state.find_sweep("one")
        holders = state.leases(info.id) if info else []
        return any("session 1 of 1: run" in (holder.activity or "") for holder in holders)


def test_a_sweep_that_is_killed_while_it_measures_goes_on_where_it_was(tmp_path: Path) -> None:
    project = Project(tmp_path, {"MODELMILL_ENGINE": "optimum"})
    endless = ("--iterations", "1000000", "--warmup", "0")
    with project.start(*SWEEP, *endless, "--stamp", "one", plain=True) as running:
        assert eventually(lambda: is_measuring(project), 120.0)
        victims = project.processes()
        running.signal(signal.SIGKILL)
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
    assert project.statuses("one") == {"published": 1}
    assert measurements(project) == []
    built = project.ran("one")

    resumed = project.ok("resume", "one", *QUICK)
    assert f"measured       {CELL}  p50 " in resumed.out
    assert "benchmarks: 1 measured" in resumed.out
    assert project.ran("one") == built, "nothing is built again"
    (found,) = measurements(project)
    assert found.cell == CELL
    assert found.tree == project.outcomes("one")[CELL].tree
    assert (found.protocol["iterations"], found.percentiles["count"]) == (20, 20)
    assert (found.emulated, found.device) == (False, "cpu")
    with project.state() as state:
        (bench,) = state.benches(project.sweep("one").id)
        assert bench.state is BenchState.MEASURED
        raw = state.raw_of(found.id)
        assert raw is not None
        assert len(raw["sessions"]) == 1

    same = project.ok(*SWEEP, *QUICK, "--stamp", "two", "--if-changed")
    assert f"measured       {CELL}  as before" in same.out, same.out.splitlines()
    assert len(measurements(project)) == 1, "the content is measured already"
    other = project.ok("resume", "two", "--iterations", "25", "--warmup", "1")
    assert f"measured       {CELL}  p50 " in other.out
    assert len(measurements(project)) == 2, "by another protocol it is not"
    project.ok("report", "two", "--against", "one", "-o", "report.html")
    assert CELL in (tmp_path / "report.html").read_text("utf-8")
    left = [path for path in (project.home / "store" / "tmp").iterdir() if path.is_dir()]
    assert left == [], "what was pulled is gone"
