"""Which sweeps leave the state, by hand and after a nightly sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.cli.main import main
from flows.observe.sweep_data import earlier_sweeps
from flows.sweep.pruning import prune
from matrix.status import Status
from state.records import SweepInfo
from tests.states.samples import begin, rows, sql
from tests.sweeps.in_memory import SweepHarness, make_plan, small_model

DAY = 86400.0


def night(harness: SweepHarness, stamp: str, days_ago: float, *models: str) -> SweepInfo:
    """A sweep of these models that ended so long ago."""
    plan = make_plan(*(small_model(name, cells=1) for name in models or ("a/one",)), stamp=stamp)
    harness.sweep(plan)
    assert harness.begun is not None
    _age(harness, harness.begun.info.id, days_ago)
    return harness.state.sweep(harness.begun.info.id)


def _age(harness: SweepHarness, sweep: int, days: float) -> None:
    earlier = "begun_at = begun_at - :s, created_at = created_at - :s, ended_at = ended_at - :s"
    sql(harness.state, f"UPDATE sweep SET {earlier} WHERE id = {sweep}", s=days * DAY)


def stamps(harness: SweepHarness) -> set[str]:
    return {one.stamp for one in harness.state.sweeps()}


def test_old_sweeps_go_but_what_may_be_needed_stays(harness: SweepHarness) -> None:
    night(harness, "n1", 100, "a/one")
    night(harness, "n2", 99, "a/one", "b/two")  # has the newest record of b/two
    n3 = night(harness, "n3", 98, "a/one")
    n4 = night(harness, "n4", 10, "a/one")
    other = begin(harness.state, rows(1), stamp="other")  # of another feed: nothing is newer
    harness.state.end(other.id, 130)
    _age(harness, other.id, 200)
    state = harness.state
    assert prune(state, 30 * DAY, keep=9).removed == ()
    assert prune(state, 30 * DAY, keep=2).removed == ("n1",)
    asked = prune(state, 30 * DAY, dry_run=True)
    assert (asked.removed, asked.resumable, asked.needed) == (("n3",), (), ("n2",))
    assert earlier_sweeps(state, n4)[0] == n3
    assert prune(state, 30 * DAY) == asked
    assert stamps(harness) == {"n2", "n4", "other"}
    assert prune(state, 0.0).removed == ()
    assert set(state.statuses(n4.id).values()) == {Status.PUBLISHED}


def test_what_a_resume_goes_on_with_stays(harness: SweepHarness) -> None:
    info = night(harness, "n1", 100)
    sql(harness.state, "UPDATE outcome SET status = 'planned', ended_at = NULL")
    night(harness, "n2", 90)
    found = prune(harness.state, 30 * DAY)
    assert (found.removed, found.resumable) == ((), (info.stamp,))
    assert list(found.lines(dry_run=True)) == [
        "would remove 0 sweeps",
        "not over, a resume continues them: n1",
    ]


def test_a_nightly_sweep_removes_old_ones(harness: SweepHarness) -> None:
    night(harness, "n1", 100)
    night(harness, "n2", 40)
    harness.sweep(make_plan(small_model("a/one", cells=1), stamp="n3"))
    assert stamps(harness) == {"n1", "n2", "n3"}
    plan = make_plan(small_model("a/one", cells=1), stamp="n4")
    harness.sweep(plan, keep_sweeps=50 * DAY)
    assert stamps(harness) == {"n2", "n3", "n4"}


def test_the_command_says_what_it_does(
    harness: SweepHarness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    night(harness, "n1", 100)
    night(harness, "n2", 10)
    home = ("--home", str(harness.root))
    assert main(["state", "prune", *home]) == 2
    assert "--older-than 90d or --keep 30" in capsys.readouterr().err
    assert main(["state", "prune", "--older-than", "30d", "--dry-run", *home]) == 0
    assert capsys.readouterr().out == "would remove 1 sweep: n1\n"
    assert stamps(harness) == {"n1", "n2"}
    monkeypatch.setenv("MODELMILL_KEEP_SWEEPS", "30d")
    assert main(["state", "prune", "--json", *home]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == ["n1"]
    assert main(["state", "prune", "--keep", "1", *home]) == 0
    assert capsys.readouterr().out == "removed 0 sweeps\n"


def test_there_is_nothing_to_prune_where_no_state_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "prune", "--keep", "3", "--home", str(tmp_path / "none")]) == 5
    assert not (tmp_path / "none").exists()
