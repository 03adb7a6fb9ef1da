"""Tunings on a fleet: built anywhere, measured where the device is, through faults."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flows.tune.record import BASELINE, Recorded, recorded
from machine.ledger import Ledger, Reservation
from machine.reservations import DISTURBS
from matrix.errors import Exit
from matrix.needs import is_measuring
from matrix.trials import TuningStatus, Verdict
from state.measurements import MEASURED
from state.records import Kind
from tests.fleets.machines import LIMIT, POOL, Fleet, start_fleet, wait_for
from tests.sweeps.command import model
from tests.tunings.project import SPACE

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.name != "posix", reason="PostgreSQL is started by its POSIX tools"),
]
FEW = ("--iterations", "40", "--warmup", "1", "--threads", "1", "--seed", "7")
TRIED = """
[[hypothesis]]
id = "newer-opset"
title = "Another opset"
targets = ["*"]
axis = "opset"
[hypothesis.changes]
opset = 19
"""
NAME = "night"


@dataclass
class Pace:
    """Has machines that share a ledger measure one step at a time."""

    ledger: Ledger
    _held: Reservation = field(init=False)

    def hold(self) -> None:
        """Begin no other measurement."""
        self._held = self.ledger.reserve([DISTURBS], "a test")

    def step(self) -> None:
        """Let whoever waits measure once."""
        self._held.release()
        self.hold()
        time.sleep(0.1)

    def go_on(self) -> None:
        self._held.release()


@pytest.fixture
def pace(tmp_path: Path) -> Pace:
    made = Pace(Ledger(tmp_path / "machine"))
    made.hold()
    return made


@pytest.fixture
def fleet(prefect_template: Path, tmp_path: Path) -> Iterator[Fleet]:
    # A ledger of their own: builds of other tests would make the measurements wait.
    machine = str(tmp_path / "machine")
    shared = {"MODELMILL_MACHINE": machine, "MODELMILL_CACHE": str(tmp_path / "cache")}
    with start_fleet(prefect_template, tmp_path, **shared) as made:
        (made.project.folder / "space.toml").write_text(SPACE + TRIED, "utf-8")
        yield made


def order(catalog: str, name: str) -> tuple[str, ...]:
    return (
        "tune", catalog, "--target", "mlas_cpu", "--name", name, "--space", "space.toml",
        "--only", "plain-session", "newer-opset", *FEW, "--fleet", "--pool", POOL,
    )  # fmt: skip


def tunings(fleet: Fleet, name: str = NAME) -> list[Recorded]:
    with fleet.project.state() as state:
        return recorded(state, name)


def sessions(fleet: Fleet, name: str = NAME) -> list[tuple[int, float]]:
    """Every kept session of a name: its tuning and when it ended."""
    with fleet.project.state() as state:
        return sorted(
            (row.id, one.at) for row in state.tunings(name) for one in state.sessions(row.id)
        )


def measured(fleet: Fleet, pace: Pace, count: int, name: str = NAME) -> list[tuple[int, float]]:
    """Measure until there are so many sessions; they are the ones that a fault must not cost."""

    def enough() -> bool:
        pace.step()
        return len(sessions(fleet, name)) >= count

    wait_for(enough)
    return sessions(fleet, name)


def measurer(fleet: Fleet, name: str = NAME) -> int:
    """The process that measures now."""

    def found() -> list[int]:
        return [one.pid for one in fleet.project.holders(name) if is_measuring(one.needs)]

    wait_for(lambda: bool(found()))
    return found()[0]


def test_tunings_end_through_killed_workers_and_a_server_that_restarts(
    fleet: Fleet, pace: Pace
) -> None:
    catalog = fleet.project.catalog(*(model(f"tiny/{one}", salt=one) for one in "abc"))
    fleet.machine("plain")
    fleet.ready("plain")
    with fleet.project.start(*order(catalog, NAME), plain=False) as ordered:
        ordered.until("3 benchmarks wait for a machine that offers bench:cpu/cpu")
        fleet.machine("quiet", "--sweeps", "0", "--bench-machine")
        kept = measured(fleet, pace, 2)
        os.kill(measurer(fleet), signal.SIGKILL)
        fleet.prefect.stop()
        fleet.prefect.start()
        kept = measured(fleet, pace, len(kept) + 2)
        assert "tunings: " in fleet.run("status", NAME).out
        fleet.machines["quiet"].lose_power()
        fleet.machine("quiet2", "--sweeps", "0", "--bench-machine")
        pace.go_on()
        ran = ordered.end(LIMIT)
    assert ran.code == Exit.OK, ran
    found = tunings(fleet)
    assert [one.tuning.status for one in found] == [TuningStatus.DONE] * 3
    assert all(one.tuning.concluded for one in found)
    assert set(kept) <= set(sessions(fleet)), "finished sessions survive"
    assert all(one.trial("plain-session").verdict for one in found)  # type: ignore[union-attr]
    check_places(fleet)
    assert fleet.run("tune", "report", NAME, "--json").json()["name"] == NAME


def check_places(fleet: Fleet) -> None:
    """Only machines with the device measured, and they found in the cache what others had built."""
    events = fleet.project.events(NAME)
    assert any(one.kind is Kind.LOST for one in events)
    measured = {one.owner for one in events if MEASURED in (one.data or {})}
    built = {one.owner for one in events if one.status == "published"}
    assert measured
    assert measured.isdisjoint(built)
    baselines = [one.trial(BASELINE) for one in tunings(fleet)]
    assert all(one and one.making and one.making.ran == () for one in baselines)


def test_a_tuning_that_is_cancelled_is_resumed_and_a_failing_model_costs_only_itself(
    fleet: Fleet, pace: Pace
) -> None:
    bad = model("tiny/bad", act={"export": "exit:3"})
    catalog = fleet.project.catalog(model("tiny/a"), bad, model("tiny/c", salt="c"))
    fleet.machine("both", "--bench-machine")
    fleet.ready("both")
    with fleet.project.start(*order(catalog, "day"), plain=False) as ordered:
        measured(fleet, pace, 1, "day")
        ran = fleet.run("cancel", "day")
        assert (ran.code, "modelmill tune --resume day --fleet" in ran.out) == (0, True), ran
        assert ordered.end(LIMIT).code == Exit.INTERRUPTED
    wait_for(lambda: fleet.project.holders("day") == [])
    kept = sessions(fleet, "day")
    pace.go_on()
    for command in (("tune", "--resume", "day"), ("resume", "day")):
        refused = fleet.run(*command)
        assert refused.code == Exit.USAGE, refused
        assert "modelmill tune --resume day --fleet" in refused.err
    ran = fleet.run("tune", "--resume", "day", "--fleet", "--pool", POOL)
    assert ran.code == Exit.CELLS_FAILED, ran
    assert "exit code 3" in ran.out
    assert set(kept) <= set(sessions(fleet, "day"))
    found = {one.tuning.model.partition(":")[0]: one for one in tunings(fleet, "day")}
    assert found["tiny/bad"].tuning.status is TuningStatus.PLANNED
    for name in ("tiny/a", "tiny/c"):
        assert found[name].tuning.status is TuningStatus.DONE
        trial = found[name].trial("newer-opset")
        assert trial is not None
        assert trial.verdict is Verdict.SAME or trial.judgement
