"""Benchmarks on a fleet: only machines that announce themselves for it make them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.status import Status
from state.measurements import MEASURED
from state.records import BenchState
from tests.fleets.machines import Fleet, start_fleet, wait_for
from tests.sweeps.command import model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.name != "posix", reason="PostgreSQL is started by its POSIX tools"),
]
FEW = ("--iterations", "20", "--warmup", "1", "--sessions", "2")


@pytest.fixture
def fleet(prefect_template: Path, tmp_path: Path) -> Iterator[Fleet]:
    # A ledger of their own: builds of other tests would make the benchmarks wait.
    with start_fleet(
        prefect_template, tmp_path, MODELMILL_MACHINE=str(tmp_path / "machine")
    ) as made:
        yield made


def benches(fleet: Fleet) -> list[BenchState]:
    sweep = fleet.project.sweep("s1").id
    with fleet.project.state() as state:
        return [one.state for one in state.benches(sweep)]


def test_benchmarks_wait_for_the_machine_that_measures_and_nothing_else_does(
    fleet: Fleet,
) -> None:
    catalog = fleet.project.catalog(model("tiny/a"), model("tiny/b", salt="b"))
    fleet.machine("plain")
    fleet.ready("plain")
    with fleet.sweep(catalog, "s1", "--target", "mlas_cpu", "--bench", *FEW) as order:
        order.until("2 benchmarks wait for a machine that offers bench:cpu/cpu")
        wait_for(lambda: fleet.project.statuses("s1") == {"published": 2})
        assert benches(fleet) == [BenchState.WANTED] * 2
        fleet.machine("quiet", "--sweeps", "0", "--bench-machine")
        ran = order.end()
    assert (ran.code, ran.err) == (0, ""), ran
    assert benches(fleet) == [BenchState.MEASURED] * 2
    events = fleet.project.events("s1")
    measured = {one.owner for one in events if MEASURED in (one.data or {})}
    assert measured
    assert measured.isdisjoint(one.owner for one in events if one.status is Status.PUBLISHED)
    # What a machine does with a cell leaves a log there, and what it builds leaves action records.
    home = fleet.project.folder / "home-quiet"
    assert len(list((home / "logs" / "s1").glob("tiny_*_mlas_cpu-*.log"))) == 2
    assert not list((home / "store").glob("actions/*/*.json"))
    with fleet.project.state() as state:
        assert {one.cell for one in state.measurements()} == {
            "tiny/a:fill-mask@mlas_cpu",
            "tiny/b:fill-mask@mlas_cpu",
        }
