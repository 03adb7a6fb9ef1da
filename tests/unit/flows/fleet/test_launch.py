"""Ordering a sweep from a fleet, and taking the order back."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.fleet.launch import Launch, count_slots, launch_of, resume_on_fleet
from flows.fleet.run import record_run
from flows.observe.progress import SweepProgress
from flows.prefect.shown_run import tags_of
from flows.settings.resolution import resolve
from matrix.errors import UsageError
from state.errors import StateUnavailable
from state.state import State, open_state
from tests.fleets.runs import begun
from tests.states.samples import FOREIGN, begin, take
from tests.sweeps.in_memory import make_plan, small_model


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state.db")


def test_without_a_server_nothing_is_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    launch = Launch(make_plan(small_model()), resolve({}, {}, tmp_path), {}, pool="pool")
    with pytest.raises(UsageError, match="needs a Prefect server"):
        launch.go()
    assert not list(tmp_path.iterdir())


def test_a_fleet_does_not_go_on_with_a_state_that_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="PostgreSQL"):
        resume_on_fleet(resolve({}, {}, tmp_path), None, "pool", retry=(), as_json=False)


def launch_again(tmp_path: Path, **flags: object) -> Launch:
    state, run = begun(tmp_path)
    settings = resolve(flags, {}, tmp_path)
    with state:
        record_run(state, run)
        info = state.find_sweep("s")
        assert info is not None
        return launch_of(state, info, settings, "pool", (), as_json=False)


def test_flags_of_a_resume_change_what_is_no_part_of_the_plan(tmp_path: Path) -> None:
    launch = launch_again(tmp_path, tries=9, verify="loads", needs=("lab",), summary="out")
    assert launch.recorded == {
        "engine": "fake",
        "precision": ("fp32",),
        "allow_remote_code": True,
        "tries": 9,
        "verify": "loads",
        "needs": ("lab",),
    }
    assert launch.settings.tries == 9


def test_flags_that_would_change_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="keeps its plan: --feed, --precision, --jobs ch"
    ) as caught:
        launch_again(tmp_path, precision=("fp16",), jobs=3, tries=9, feed="dir:other")
    assert "--verify" in caught.value.hint


def test_a_sweep_begun_on_one_machine_goes_on_with_a_fleet(state: State, tmp_path: Path) -> None:
    recorded = {"catalog": "demo", "target": ["mlas_cpu"], "verify": "loads", "tries": 9}
    settings = resolve({"model": ("demo/bert-tiny",)}, {}, tmp_path)
    with state:
        info = state.begin("s", "dir:x", [], {}, recorded, {})
        launch = launch_of(state, info, settings, "pool", (), as_json=False)
    assert launch.plan.stamp == "s"
    (model,) = launch.plan.models
    assert [cell.target.label for cell in model.cells] == ["mlas_cpu"]
    assert (launch.recorded["catalog"], launch.recorded["verify"]) == ("demo", "loads")


def test_slots_are_counted_by_their_leases(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    with state:
        info = begin(state)
        progress = SweepProgress(state.statuses(info.id), slots=7)
        count_slots(state, info.id, progress)
        assert progress.slots == 1
        take(state, info, FOREIGN)
        count_slots(state, info.id, progress)
        assert progress.slots == 1

        def away(_sweep: int) -> None:
            raise StateUnavailable("the database restarts")

        progress.slots = 5
        monkeypatch.setattr(state, "leases", away)
        count_slots(state, info.id, progress)
        assert progress.slots == 5


def test_runs_are_tagged_with_their_models_unless_they_are_many() -> None:
    few = tags_of(make_plan(small_model("a"), small_model("b"), stamp="s"), 7)
    assert few[:2] == ["stamp:s", "sweep:7"]
    assert {"target:vitisai_npu", "model:a:fill-mask", "model:b:fill-mask"} <= set(few)
    many = tags_of(make_plan(*(small_model(f"m{n}") for n in range(31))), 7)
    assert not [tag for tag in many if tag.startswith("model:")]
