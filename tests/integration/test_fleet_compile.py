"""Compiled cells on a fleet: only machines that compile get them, the portable ones go anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleets.machines import Fleet, start_fleet, wait_for
from tests.sweeps.command import model
from tests.verification.vendor import Vendor

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.name != "posix", reason="PostgreSQL is started by its POSIX tools"),
]


@pytest.fixture
def fleet(prefect_template: Path, tmp_path: Path) -> Iterator[Fleet]:
    with start_fleet(prefect_template, tmp_path) as made:
        yield made


def test_a_compiled_cell_waits_for_the_machine_that_compiles_and_nothing_else_does(
    fleet: Fleet, tmp_path: Path
) -> None:
    vendor = Vendor.compiling(tmp_path / "vendor")
    catalog = fleet.project.catalog(model("tiny/a"), model("tiny/b", salt="b"))
    fleet.machine("plain")
    fleet.ready("plain")
    with fleet.sweep(catalog, "s1", "--target", "ov_cpu,mlas_cpu", "--compile", "ov_cpu") as order:
        order.until("2 cells wait for a machine that offers compile:ov_cpu")
        wait_for(lambda: fleet.project.statuses("s1").get("published") == 4)
        assert fleet.project.statuses("s1") == {"published": 4, "planned": 2}
        fleet.machine(
            "compiles",
            "--sweeps",
            "0",
            MODELMILL_RUNTIMES="openvino_ep",
            MODELMILL_OPENVINO_EP_PYTHON=str(vendor.python),
        )
        ran = order.end()
    assert (ran.code, ran.err) == (0, ""), ran
    assert fleet.project.statuses("s1") == {"published": 6}
    assert sum("+ov_cpu" in cell for cell in fleet.project.outcomes("s1")) == 2
