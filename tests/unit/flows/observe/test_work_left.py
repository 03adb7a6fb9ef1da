"""What is left of a sweep: from the past, corrected by how the run fares, never by the clock."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flows.observe.progress import SweepProgress
from flows.plan.estimates import (
    ESTIMATE,
    Cost,
    Estimates,
    WorkLeft,
    estimate,
    from_record,
    to_record,
)
from flows.plan.recorded import PLAN, recorded_estimates
from matrix.status import Status
from state.records import Event, Kind
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

TARGETS = ("qnn_npu", "mlas_cpu")


def cost(seconds: float, disk: float = 100.0, memory: float = 1000.0) -> Cost:
    return Cost(seconds, disk, memory, "its own history")


def known(**seconds: float) -> Estimates:
    """Models by letter; all of a model's time is estimated for its first cell."""
    cells = {
        f"{name}:t@{target}": value if target == TARGETS[0] else 0.0
        for name, value in seconds.items()
        for target in TARGETS
    }
    return Estimates({f"{name}:t": cost(value) for name, value in seconds.items()}, cells)


def cell(name: str, target: str = TARGETS[0]) -> str:
    return f"{name}:t@{target}"


def work_of(figures: Estimates | None, *names: str) -> WorkLeft:
    made = WorkLeft(figures)
    for name in names:
        for target in TARGETS:
            made.add(cell(name, target))
    return made


def left(made: WorkLeft, slots: int = 1, **at_hand: float) -> float:
    found = made.left(slots, {cell(name): seconds for name, seconds in at_hand.items()})
    assert found is not None
    return found


def test_before_anything_is_done_it_is_what_was_estimated() -> None:
    made = work_of(known(a=10, b=30), "a", "b")
    assert left(made) == pytest.approx(40)


def test_slots_share_the_work_but_not_a_model() -> None:
    made = work_of(known(a=10, b=30), "a", "b")
    assert left(made, 2) == pytest.approx(30)
    assert left(made, 16) == pytest.approx(30)


def test_what_a_cell_at_hand_has_taken_is_taken_off_but_never_all_of_it() -> None:
    made = work_of(known(a=10, b=30), "a", "b")
    assert left(made, b=20.0) == pytest.approx(20)
    assert left(made, b=2000.0) == pytest.approx(13)


def test_an_export_was_estimated_with_the_first_cell_of_its_model() -> None:
    made = work_of(known(a=10, b=30), "a", "b")
    found = made.left(1, {cell("b", "export"): 12.0})
    assert found == pytest.approx(28)
    made.took(cell("b", "export"), 12.0)
    assert left(made) == pytest.approx(28)
    made.add(cell("b"), -1)
    made.took(cell("b"), 18.0)
    assert left(made) == pytest.approx(10)


def test_a_run_that_finds_everything_in_the_store_is_estimated_to_be_short() -> None:
    made = work_of(known(**dict.fromkeys("abcdefgh", 10.0)), *"abcdefgh")
    for name in "abcd":
        made.add(cell(name), -1)
        made.add(cell(name, TARGETS[1]), -1)
        made.took(cell(name), 0.1)
        made.took(cell(name, TARGETS[1]), 0.1)
    assert left(made) < 10


def test_without_a_past_its_own_pace_counts_once_there_is_one() -> None:
    made = work_of(None, "a", "b", "c")
    assert made.left(1, {}) is None
    for target in TARGETS:
        made.add(cell("a", target), -1)
        made.took(cell("a", target), 5.0)
    assert left(made) == pytest.approx(20)
    assert made.needs(1) is None


def test_one_unknown_model_does_not_silence_the_known_ones_for_ever() -> None:
    made = work_of(known(a=10), "a", "b")
    assert made.left(1, {}) is None
    for target in TARGETS:
        made.add(cell("a", target), -1)
        made.took(cell("a", target), 5.0)
    assert left(made) == pytest.approx(10)


def test_when_nothing_is_left_nothing_is_said() -> None:
    made = work_of(known(a=10), "a")
    for target in TARGETS:
        made.add(cell("a", target), -1)
    assert left(made) == 0
    assert list(made.lines(1, {})) == []


def test_disk_and_memory_are_those_of_the_models_that_are_left() -> None:
    figures = Estimates(
        {"a:t": cost(1, 100, 1000), "b:t": cost(1, 200, 3000)}, {cell("a"): 1.0, cell("b"): 1.0}
    )
    made = WorkLeft(figures)
    made.add(cell("a"))
    made.add(cell("b"))
    assert made.needs(2) == (300, 4000)
    made.add(cell("b"), -1)
    assert made.needs(2) == (100, 1000)
    assert list(made.lines(2, {}))[1] == "disk about 100 B, memory about 1.0 kB"


def test_figures_survive_the_state(harness: SweepHarness) -> None:
    plan = make_plan(small_model("a/one"), small_model("b/two"))
    harness.sweep(plan)
    assert harness.begun is not None
    assert recorded_estimates(harness.state, harness.begun.info.id) is None
    again = make_plan(small_model("a/one"), small_model("c/new"), stamp="20260610")
    expected = estimate(again, harness.state)
    assert from_record(json.loads(json.dumps(to_record(expected)))).unknown == 1
    harness.sweep(again)
    read = recorded_estimates(harness.state, harness.begun.info.id)
    assert read is not None
    assert read.cells == pytest.approx(expected.cells, abs=0.001)
    for name, one in expected.models.items():
        assert read.seconds(name) == pytest.approx(one.seconds, abs=0.001)
        assert read.models[name].basis == one.basis


def event(name: str, status: Status, at: float = 0.0, **data: object) -> Event:
    return Event(1, at, 1, name, name.partition("@")[0], Kind.STATUS, status, 1, "w", data)


def test_who_follows_learns_the_figures_from_the_events() -> None:
    names = [cell("a"), cell("a", TARGETS[1])]
    progress = SweepProgress(dict.fromkeys(names, Status.PLANNED))
    assert list(progress.left_lines()) == []
    data = {PLAN: {}, ESTIMATE: to_record(known(a=10))}
    progress.apply(Event(1, 0.0, 1, None, None, Kind.NOTICE, None, None, None, data))
    assert next(progress.left_lines()) == "about 10s left"


def test_publishing_goes_on_beside_and_keeps_no_slot() -> None:
    names = [cell("a"), cell("b")]
    progress = SweepProgress(dict.fromkeys(names, Status.PLANNED), known=known(a=10, b=10))
    progress.apply(event(names[0], Status.BUILDING, 100.0))
    progress.apply(event(names[0], Status.VERIFIED, 110.0))
    assert progress.ended == 0
    assert next(progress.left_lines()) == "about 10s left"
    progress.apply(event(names[0], Status.PUBLISHED, 500.0))
    assert progress.ended == 1
    assert next(progress.left_lines()) == "about 10s left"


def test_a_cell_that_is_taken_up_again_is_to_be_done_again() -> None:
    progress = SweepProgress({cell("a"): Status.PLANNED}, known=known(a=10))
    progress.apply(event(cell("a"), Status.BUILDING, 100.0))
    progress.apply(event(cell("a"), Status.BUILD_FAILED, 110.0))
    assert list(progress.left_lines()) == []
    progress.apply(event(cell("a"), Status.PLANNED, 120.0))
    assert next(progress.left_lines()) == "about 10s left"


def test_if_changed_tells_the_most_it_can_take_and_is_recorded() -> None:
    figures = replace(known(a=10, b=30), if_changed=True)
    made = work_of(from_record(to_record(figures)), "a", "b")
    assert list(made.lines(1, {})) == ["about 40s left, if everything has changed"]
