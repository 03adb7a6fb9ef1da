"""Tunings as files: graded again from their sessions, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import main
from flows.tune.exported import export, grade_files, is_export, read_export, regraded
from flows.tune.record import Recorded
from matrix.errors import PlanError
from matrix.status import FailureClass
from matrix.trials import Verdict
from state.errors import StateError
from tests.states.samples import sql
from tests.tunings.fakes import NAME, Play, Stage
from workers.errors import BuildFailed
from workers.measure.benchmark import pack


@pytest.fixture
def exported(stage: Play, tmp_path: Path) -> tuple[Stage, Recorded, Path]:
    one = stage({19: 0.8, 20: 1.0, 21: 2.0, 22: 1.2})
    found = one.played()
    file = tmp_path / "night.json"
    assert export(one.state, NAME, file) == len(one.state.sessions(found.tuning.id))
    return one, found, file


def _altered(file: Path, change: Any) -> Path:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    return file


def test_times_that_are_text_are_an_error_that_names_them(
    exported: tuple[Stage, Recorded, Path], tmp_path: Path
) -> None:
    one, _, _ = exported
    sql(one.state, "UPDATE trial_session SET raw = 'x' WHERE rowid = 1")
    with pytest.raises(StateError, match="the times of session"):
        export(one.state, NAME, tmp_path / "again.json")
    assert not (tmp_path / "again.json").exists()


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

    (one,) = grade_files([_altered(file, claim)], None)
    row = next(row for row in one.rows if row.trial == "opset-20")
    assert (row.recorded, row.verdict) == ("better", Verdict.NO_DIFFERENCE)


def test_the_command_judges_exports_and_nothing_else(
    exported: tuple[Stage, Recorded, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, file = exported
    assert main(["tune", "--replay", str(file), "--dest", str(file.parent)]) == 0
    shown = capsys.readouterr().out
    assert "judged again" in shown
    assert "0 verdicts that the sessions do not support" in shown
    assert (file.parent / f"{file.stem}-replayed.html").exists()
    assert main(["tune", "--replay", str(file), "--json", "--min-gain", "50%"]) == 0
    rows = {row["trial"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["opset-19"]["recorded"] == "better"
    assert rows["opset-19"]["verdict"] == "no difference"
    other = file.with_name("results.json")
    other.write_text('{"hypotheses": {}}', "utf-8")
    assert main(["tune", "--replay", str(other), str(file.with_name("none"))]) == 2
    told = capsys.readouterr().err
    assert "2 problems in the exports" in told
    assert told.count("is not an exported tuning") == 2
    assert main(["tune", "--replay", str(file), "--export", str(other)]) == 2


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


def test_sessions_with_damaged_times_are_one_clear_line(
    exported: tuple[Stage, Recorded, Path],
) -> None:
    def damage(data: Any) -> None:
        for one in data["tunings"][0]["sessions"]:
            if one["trial"] == "opset-19":
                one["raw"] = {"this": {"blocks": "rubbish"}}

    with pytest.raises(PlanError, match="is not an exported tuning"):
        read_export(_altered(exported[2], damage))


def _of(data: Any, key: str, kind: str) -> list[Any]:
    rows = data["tunings"][0]["sessions"]
    return [one for one in rows if (one["trial"], one["kind"]) == (key, kind)]


@pytest.mark.parametrize("verdict", ["crashed", "timed out", None])
def test_sessions_before_a_crash_or_a_kill_make_no_verdict(
    exported: tuple[Stage, Recorded, Path], verdict: str | None
) -> None:
    def end(data: Any) -> None:
        trials = data["tunings"][0]["trials"]
        next(one for one in trials if one["key"] == "opset-19")["verdict"] = verdict

    (one,) = read_export(_altered(exported[2], end))
    again = regraded(one)
    trial = again.trial("opset-19")
    assert trial is not None
    assert (trial.verdict, again.tuning.champion) == (verdict, "")


@pytest.mark.parametrize("key", ["opset-19", "opset-20", "opset-21"])
def test_a_verdict_is_not_believed_without_all_its_sessions(
    exported: tuple[Stage, Recorded, Path], key: str
) -> None:
    def forget(data: Any) -> None:
        told = data["tunings"][0]
        lost = _of(data, key, "comparison")[:1] or _of(data, key, "screen")
        told["sessions"] = [one for one in told["sessions"] if one not in lost]

    (one,) = read_export(_altered(exported[2], forget))
    again = regraded(one)
    trial = again.trial(key)
    assert trial is not None
    assert (trial.verdict, trial.gain) == (Verdict.TOO_NOISY, None)
    assert "does not have all sessions" in trial.why
    assert again.tuning.champion in {"", "opset-19"} - {key}


def test_what_is_slower_when_it_is_confirmed_is_too_noisy(
    exported: tuple[Stage, Recorded, Path],
) -> None:
    def turn(data: Any) -> None:
        for one in _of(data, "opset-19", "confirmation"):
            this, other = one["raw"]["this"], one["raw"]["other"]
            one["raw"] = {"this": other, "other": this, "null": this}

    (one,) = read_export(_altered(exported[2], turn))
    trial = regraded(one).trial("opset-19")
    assert trial is not None
    assert trial.verdict is Verdict.TOO_NOISY
    assert trial.why.startswith("not confirmed in fresh sessions")


def _no_runs(data: Any) -> None:
    raw = _of(data, "opset-20", "comparison")[0]["raw"]
    raw["this"] |= {"turns": [0] * len(raw["this"]["turns"]), "times": pack([])}


@pytest.mark.parametrize(
    "change",
    [
        _no_runs,
        lambda data: [one["raw"].pop("null") for one in _of(data, "opset-20", "comparison")],
        lambda data: data["tunings"][0]["tuning"]["detail"].update(insight={"nodes": "many"}),
        lambda data: data["tunings"][0]["tuning"]["detail"].update(explained={"groups": 7}),
        lambda data: data["tunings"][0]["trials"][1].update(key="a\x1b[2Jb"),
    ],
)
def test_rubbish_inside_is_one_clear_line(
    exported: tuple[Stage, Recorded, Path], change: Any
) -> None:
    file = _altered(exported[2], change)
    with pytest.raises(PlanError, match=r"night\.json: is not an exported tuning"):
        grade_files([file], None)


def test_a_time_that_no_clock_tells_is_left_out(exported: tuple[Stage, Recorded, Path]) -> None:
    file = _altered(exported[2], lambda data: data["tunings"][0]["tuning"].update(ended_at=1e300))
    (one,) = grade_files([file], None)
    assert {seen.evidence.at for seen in one.observations} == {""}


def test_what_is_learned_is_of_the_machine_that_measured_and_by_its_own_least_gain(
    exported: tuple[Stage, Recorded, Path],
) -> None:
    def elsewhere(data: Any) -> None:
        data["tunings"][0]["tuning"]["detail"]["machine"]["processor"] = "Another One"

    (one,) = grade_files([_altered(exported[2], elsewhere)], 30.0)
    assert {seen.evidence.device for seen in one.observations} == {"Another One CPU"}
    assert next(row.verdict for row in one.rows if row.trial == "opset-19") == "no difference"
    better = [seen.settings for seen in one.observations if seen.verdict is Verdict.BETTER]
    assert better == [("opset=19",)]


def test_an_export_may_have_any_name(exported: tuple[Stage, Recorded, Path]) -> None:
    assert is_export(exported[2].rename(exported[2].with_suffix(".txt")))


def test_an_export_holds_no_password(stage: Play, tmp_path: Path) -> None:
    one = stage({19: 0.8})
    failure = "the hub at https://me:hunter22secret@hub.example refuses"
    one.maker.failing["opset19"] = BuildFailed(FailureClass.NETWORK, "export", failure)
    one.played()
    export(one.state, NAME, tmp_path / "night.json")
    text = (tmp_path / "night.json").read_text()
    assert "refuses" in text
    assert "hunter22secret" not in text
