"""Two sweeps on one machine: their budgets are one, and kill -9 of the one lets the other go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from machine.reservations import VARIABLE
from tests.machine.timing import eventually
from tests.sweeps.command import Project, model

BUDGET = "1MB"


def new_project(folder: Path, ledger: Path) -> Project:
    folder.mkdir()
    return Project(folder, {VARIABLE: str(ledger), "MODELMILL_MEMORY_BUDGET": BUDGET})


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_stage_waits_for_the_memory_of_another_sweep_until_that_is_killed(
    tmp_path: Path,
) -> None:
    one, two = (new_project(tmp_path / name, tmp_path / "ledger") for name in ("one", "two"))
    hanging = one.catalog(model("tiny/hanging", memory=600_000, act={"export": "hang"}))
    with one.start("sweep", hanging, "--target", "ov_cpu", plain=True) as first:
        assert eventually(lambda: "hanging" in log_of(one), 60.0)
        name = two.catalog(model("tiny/waiting", memory=600_000))
        with two.start("sweep", name, "--target", "ov_cpu", "--stamp", "s1", plain=True) as second:
            waits = f"of memory, held by process {first.popen.pid} (tiny/hanging:fill-mask@ov_cpu"
            assert eventually(lambda: waits in log_of(two), 60.0), log_of(two)
            assert second.popen.poll() is None
            first.signal(signal.SIGKILL)
            assert second.end().code == 0
    assert two.statuses("s1") == {"published": 1}


def log_of(project: Project) -> str:
    return "".join(log.read_text("utf-8", "replace") for log in project.home.glob("logs/*/*.log"))
