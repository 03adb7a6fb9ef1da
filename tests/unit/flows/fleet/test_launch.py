"""Ordering a sweep from a fleet, and taking the order back."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.resolution import resolve
from flows.fleet.again import _launch, again_on_fleet
from flows.fleet.board import tags_of
from flows.fleet.launch import Launch, cancel_sweep, count_slots
from flows.fleet.ticket import write_ticket
from flows.observe.tally import Tally
from matrix.errors import Exit, UsageError
from matrix.status import Status
from state.errors import StateUnavailable
from state.ledger import State, open_state
from state.records import Kind
from tests.fleets.tickets import begun
from tests.states.samples import FOREIGN, begin, take
from tests.sweeps.in_memory import make_plan, small_model


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state.db")


def test_without_a_server_nothing_is_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    launch = Launch(make_plan(small_model()), resolve({}, {}, tmp_path), {}, "pool")
    with pytest.raises(UsageError, match="needs a Prefect server"):
        launch.go()
    assert not list(tmp_path.iterdir())


def test_a_fleet_does_not_go_on_with_a_state_that_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="PostgreSQL"):
        again_on_fleet(resolve({}, {}, tmp_path), None, "pool", retry=(), as_json=False)


def launch_again(tmp_path: Path, **flags: object) -> Launch:
    state, ticket = begun(tmp_path)
    settings = resolve(flags, {}, tmp_path)
    with state:
        write_ticket(state, ticket)
        info = state.find_sweep("s")
        assert info is not None
        return _launch(state, info, settings, "pool", (), as_json=False)


def test_flags_of_a_resume_change_what_is_no_part_of_the_plan(tmp_path: Path) -> None:
    launch = launch_again(tmp_path, tries=9, verify="loads", needs=("lab",), summary="out")
    assert launch.values == {
        "engine": "fake",
        "precision": ["fp32"],
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
        info = state.begin("s", "dir:x", [], [], recorded, {})
        launch = _launch(state, info, settings, "pool", (), as_json=False)
    assert launch.plan.stamp == "s"
    (model,) = launch.plan.models
    assert [cell.target.label for cell in model.cells] == ["mlas_cpu"]
    assert (launch.values["catalog"], launch.values["verify"]) == ("demo", "loads")


def test_cancelling_leaves_a_sweep_that_can_be_resumed(state: State) -> None:
    with state:
        info = begin(state)
        cells = cancel_sweep(state, info.id)
        after = state.find_sweep(info.stamp)
        assert after is not None
        assert after.exit_code == Exit.INTERRUPTED
        outcomes = list(state.outcomes(info.id))
        assert cells == len(outcomes)
        assert {one.status for one in outcomes} == {Status.CANCELLED}
        assert len(state.events(info.id, kind=Kind.INTERRUPTED)) == 1
        begin(state)
        assert {one.status for one in state.outcomes(info.id)} == {Status.PLANNED}


def test_cancelling_takes_nothing_out_of_hands_that_hold_on(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.fleet.launch.RELEASED", 0.0)
    with state:
        info = begin(state)
        held = take(state, info, FOREIGN)
        cancel_sweep(state, info.id)
        left = {one.status for one in state.outcomes(info.id, model=held.model)}
        assert left == {Status.PLANNED}


def test_slots_are_counted_by_their_leases(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    with state:
        info = begin(state)
        tally = Tally(state.statuses(info.id), slots=7)
        count_slots(state, info.id, tally)
        assert tally.slots == 1
        take(state, info, FOREIGN)
        count_slots(state, info.id, tally)
        assert tally.slots == 1

        def away(_sweep: int) -> None:
            raise StateUnavailable("the database restarts")

        tally.slots = 5
        monkeypatch.setattr(state, "leases", away)
        count_slots(state, info.id, tally)
        assert tally.slots == 5


def test_runs_are_tagged_with_their_models_unless_they_are_many() -> None:
    few = tags_of(make_plan(small_model("a"), small_model("b"), stamp="s"), 7)
    assert few[:2] == ["stamp:s", "sweep:7"]
    assert {"target:vitisai_npu", "model:a:fill-mask", "model:b:fill-mask"} <= set(few)
    many = tags_of(make_plan(*(small_model(f"m{n}") for n in range(31))), 7)
    assert not [tag for tag in many if tag.startswith("model:")]
