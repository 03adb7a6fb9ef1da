"""Tunings as files: graded again from their sessions, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.tune.elsewhere import read_elsewhere
from flows.tune.exported import export, is_export, read_export, regraded
from flows.tune.record import Recorded
from matrix.errors import PlanError
from matrix.trials import Verdict
from tests.tunings.fakes import NAME, Play, Stage


@pytest.fixture
def exported(stage: Play, tmp_path: Path) -> tuple[Stage, Recorded, Path]:
    one = stage({19: 0.8, 20: 1.0, 21: 2.0, 22: 1.2})
    one.begin()
    found = one.run()
    file = tmp_path / "night.json"
    assert export(one.state, NAME, file) == len(one.state.sessions(found.tuning.id))
    return one, found, file


def _altered(file: Path, change: Any) -> Path:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    return file


def test_the_same_verdicts_follow_from_the_sessions(exported: tuple[Stage, Recorded, Path]) -> None:
    _, found, file = exported
    assert is_export(file)
    (one,) = read_export(file)
    again = regraded(one)
    assert again.tuning.champion == "opset-19"
    assert [(two.key, two.verdict) for two in again.trials] == [
        (two.key, two.verdict) for two in found.trials
    ]
    won, was = again.trial("opset-19"), found.trial("opset-19")
    assert won is not None
    assert was is not None
    assert won.gain == was.gain


def test_a_verdict_that_the_sessions_do_not_bear_is_told(
    exported: tuple[Stage, Recorded, Path],
) -> None:
    _, _, file = exported

    def claim(data: Any) -> None:
        for one in data["tunings"][0]["trials"]:
            if one["key"] == "opset-20":
                one["verdict"] = "better"

    (one,) = read_elsewhere([_altered(file, claim)], None)
    row = next(row for row in one.rows if row.trial == "opset-20")
    assert (row.claim, row.verdict) == ("better", Verdict.NO_DIFFERENCE)
    assert row.agreement == "the sessions do not support the claim"


def test_what_looks_better_without_a_confirmation_is_not(
    exported: tuple[Stage, Recorded, Path],
) -> None:
    _, _, file = exported

    def forget(data: Any) -> None:
        told = data["tunings"][0]
        told["sessions"] = [one for one in told["sessions"] if one["kind"] != "confirmation"]

    (one,) = read_export(_altered(file, forget))
    won = regraded(one).trial("opset-19")
    assert won is not None
    assert won.verdict is Verdict.TOO_NOISY
    assert "no sessions that confirm it" in won.why
    assert regraded(one).tuning.champion == ""


def test_a_larger_least_gain_changes_the_verdict(exported: tuple[Stage, Recorded, Path]) -> None:
    (one,) = read_export(exported[2])
    won = regraded(one, 30).trial("opset-19")
    assert won is not None
    assert (won.verdict, "less than 30 %" in won.why) == (Verdict.NO_DIFFERENCE, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(schema=2),
        lambda data: data.pop("tunings"),
        lambda data: data.update(tunings=[1]),
        lambda data: data["tunings"][0].pop("sessions"),
        lambda data: data["tunings"][0]["tuning"].update(detail={}),
        lambda data: data["tunings"][0]["trials"][1].update(phase="evening"),
        lambda data: data["tunings"][0]["sessions"][0].update(kind=7),
    ],
)
def test_rubbish_is_one_clear_line(exported: tuple[Stage, Recorded, Path], change: Any) -> None:
    file = _altered(exported[2], change)
    with pytest.raises(PlanError) as failed:
        read_export(file)
    (problem,) = failed.value.problems
    assert "\n" not in str(problem)
    assert "night.json" in str(problem)


def test_sessions_with_damaged_times_do_not_count(exported: tuple[Stage, Recorded, Path]) -> None:
    def damage(data: Any) -> None:
        for one in data["tunings"][0]["sessions"]:
            if one["trial"] == "opset-19":
                one["raw"] = {"this": {"blocks": "rubbish"}}

    (one,) = read_export(_altered(exported[2], damage))
    assert ("opset-19", "comparison") not in {key for key, rows in one.sessions.items() if rows}
