"""Tunings that a fleet makes, as they are planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.plan.recorded import TUNING
from flows.settings.resolution import resolve
from flows.settings.settings import Settings
from flows.stop import Stop
from flows.sweep.lifecycle import Sweep
from flows.tune.batch import Order, begin_shared, of_fleet
from flows.tune.record import tuning_of
from matrix.errors import UsageError
from matrix.model import Plan
from matrix.needs import is_measuring
from state.state import State, open_state
from tests.fakes.feed import MemoryFeed
from tests.tunings.fakes import ENTRY


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with open_state(tmp_path / "state.db") as opened:
        yield opened


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "catalog.toml").write_text(ENTRY, "utf-8")
    flags = {"home": str(tmp_path / "home"), "target": ("mlas_cpu",), "champions": "mine.toml"}
    return resolve(flags, {}, tmp_path)


def begun(settings: Settings, state: State, name: str = "night") -> tuple[Plan, Settings]:
    return begin_shared(settings, state, Order("catalog.toml", name))


def recorded(settings: Settings, state: State, plan: Plan, **told: object) -> Sweep:
    feed = MemoryFeed()
    feed.preflight()
    sweep = Sweep(plan, settings, state, feed, Stop(), {**told, "catalog": "catalog.toml"})
    sweep.begin()
    return sweep


def test_the_name_of_the_tunings_is_the_stamp_of_what_is_built_for_them(
    settings: Settings, state: State
) -> None:
    plan, ours = begun(settings, state)
    assert (plan.stamp, ours.stamp, ours.bench, ours.champions) == ("night", "night", True, None)
    (cell,) = plan.cells()
    assert cell.package == "modelmill-tuning-a-b"
    assert cell.version.startswith("0.0.0-night-")
    (row,) = state.tunings("night")
    assert tuning_of(row).cell == cell


def test_the_packages_that_the_user_names_are_taken(settings: Settings, state: State) -> None:
    origins = {**settings.origins, "package": "flag --package"}
    plan, _ = begun(replace(settings, package="ours-{model}", origins=origins), state)
    assert next(plan.cells()).package == "ours-a-b"


def test_a_machine_that_tunes_needs_the_device_and_the_engine(
    settings: Settings, state: State
) -> None:
    plan, ours = begun(settings, state)
    assert of_fleet(state, "night") is None
    sweep = recorded(ours, state, plan, tuning={"budget": 60.0})
    found = of_fleet(state, "night")
    assert found is not None
    assert found.settings[TUNING] == {"budget": 60.0}
    (needs,) = filter(is_measuring, state.demand(sweep.info.id))
    assert needs == {"bench:cpu/cpu", "engine:optimum"}


@pytest.mark.parametrize("name", ["Night", "night!", "a b"])
def test_a_name_that_is_no_stamp_is_refused(settings: Settings, state: State, name: str) -> None:
    with pytest.raises(UsageError, match="may hold a-z"):
        begun(settings, state, name)
    assert state.tunings() == []


def test_a_name_is_given_once_among_tunings_and_sweeps(settings: Settings, state: State) -> None:
    plan, ours = begun(settings, state)
    with pytest.raises(UsageError, match="there is a tuning called night already"):
        begun(settings, state)
    recorded(replace(ours, stamp="day"), state, replace(plan, stamp="day"))
    with pytest.raises(UsageError, match="there is a sweep called day already"):
        begun(settings, state, "day")
    first, _ = begun(settings, state, "")
    second, _ = begun(settings, state, "")
    assert second.stamp == f"{first.stamp}-2"
