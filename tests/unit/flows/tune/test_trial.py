"""Verdicts of trials that win nothing, on builds of known times."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.status import FailureClass
from matrix.trials import SessionKind, TuningStatus, Verdict
from matrix.verification import Rung
from tests.measuring.runtimes import always, crash
from tests.tunings.fakes import Play, hypothesis, step, trial
from workers.errors import BuildFailed


@pytest.mark.parametrize(
    ("ms", "verdict"),
    [(0.97, Verdict.NO_DIFFERENCE), (1.0, Verdict.NO_DIFFERENCE), (1.2, Verdict.WORSE)],
)
def test_what_is_not_faster_is_not_confirmed(stage: Play, ms: float, verdict: Verdict) -> None:
    one = stage({19: ms})
    found = one.played()
    assert trial(found, 19).verdict is verdict
    assert found.tuning.champion == ""
    assert one.sessions() == 4


def test_a_hopeless_trial_is_measured_no_further_than_its_screening(stage: Play) -> None:
    one = stage({19: 1.6})
    found = one.played()
    lost = trial(found, 19)
    assert (lost.verdict, lost.judgement) == (Verdict.WORSE, None)
    assert lost.why == "1.60 times the baseline's time when it was screened"
    assert one.sessions() == 1


def test_what_is_better_only_once_is_not_better(stage: Play) -> None:
    """As if the device had been in another mood during the comparison."""
    one = stage({19: 0.8})
    runtimes: list[int] = []

    def hook(op: str, key: str, build: str) -> Any:
        if op == "bench_open" and build == "opset19" and key in {"other", "null"}:
            runtimes.append(1)  # the confirmation begins: it has the roles swapped
            one.runtimes.times["opset19"] = one.runtimes.times["opset17"]

    one.hook = hook
    found = one.played()
    lost = trial(found, 19)
    assert runtimes
    assert lost.verdict is Verdict.NO_DIFFERENCE
    assert lost.why.startswith("not confirmed in fresh sessions: ")
    assert lost.decision is not None
    assert lost.decision.verdict is Verdict.BETTER
    assert found.tuning.champion == ""


def test_a_device_that_jumps_is_too_noisy(stage: Play) -> None:
    one = stage({19: 0.9})
    speeds = iter([1, 3, 1, 2, 1, 4] * 20)

    def hook(op: str, _key: str, build: str) -> Any:
        if op == "bench_open":
            one.runtimes.times[build] = always(1_000_000 * next(speeds))

    one.hook = hook
    assert trial(one.played(), 19).verdict in {Verdict.TOO_NOISY, Verdict.WORSE}


def test_the_same_artifact_is_not_measured_again(stage: Play) -> None:
    one = stage({18: 0.9, 19: 0.9, 20: 1.0})
    one.maker.artifacts = {"opset19": "opset18", "opset20": "opset17"}
    found = one.played()
    same = trial(found, 19)
    assert (same.verdict, same.same_as) == (Verdict.SAME, "opset-18")
    assert same.why == "the same artifact as opset-18"
    assert trial(found, 20).why == "the same artifact as the baseline"
    assert one.maker.checked == ["opset17", "opset18"]
    assert one.sessions() == 7


@pytest.mark.parametrize(
    ("rung", "verdict"),
    [
        ("parity", Verdict.INACCURATE),
        ("task", Verdict.INACCURATE),
        ("shapes", Verdict.INACCURATE),
        ("loads", Verdict.CRASHED),
        ("policy", Verdict.BUILD_FAILED),
    ],
)
def test_a_build_that_does_not_hold_gets_no_time(stage: Play, rung: str, verdict: Verdict) -> None:
    one = stage({19: 0.5})
    one.maker.broken["opset19"] = Rung(rung, False, "off by 3")
    found = one.played()
    wrong = trial(found, 19)
    assert (wrong.verdict, wrong.why) == (verdict, f"{rung}: off by 3")
    assert one.sessions() == 0
    assert found.tuning.status is TuningStatus.DONE


def test_accuracy_that_cannot_be_judged_is_none(stage: Play) -> None:
    one = stage({19: 0.5})
    one.maker.broken["opset19"] = Rung("parity", None, "not run: because there is no export")
    assert trial(one.played(), 19).verdict is Verdict.INACCURATE


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (FailureClass.OPTIMIZE, Verdict.BUILD_FAILED),
        (FailureClass.TIMEOUT, Verdict.TIMED_OUT),
        (FailureClass.CRASH, Verdict.BUILD_FAILED),
    ],
)
def test_a_build_that_fails_costs_its_trial_only(
    stage: Play, failure: FailureClass, verdict: Verdict
) -> None:
    one = stage({18: 0.8, 19: 0.8})
    one.maker.failing["opset18"] = BuildFailed(failure, "optimize", "no such pass", hint="look")
    found = one.played()
    lost = trial(found, 18)
    assert (lost.verdict, lost.why) == (verdict, "optimize: no such pass (look)")
    assert trial(found, 19).verdict is Verdict.BETTER


def test_an_error_of_any_kind_costs_its_trial_only(stage: Play) -> None:
    one = stage({18: 0.8, 19: 0.8})
    one.maker.failing["opset18"] = ZeroDivisionError("oh")
    found = one.played()
    assert (trial(found, 18).verdict, trial(found, 18).why) == (
        Verdict.CRASHED, "ZeroDivisionError('oh')",
    )  # fmt: skip
    assert trial(found, 19).verdict is Verdict.BETTER


def test_a_crash_is_tried_once_more_with_fewer_iterations_after_a_rest(stage: Play) -> None:
    one = stage({19: 0.8})
    crashes = iter([crash()])

    def hook(op: str, key: str, build: str) -> Any:
        if (op, key, build) == ("bench_run", "this", "opset19"):
            return next(crashes, None)
        return None

    one.hook = hook
    found = one.played()
    won = trial(found, 19)
    assert won.verdict is Verdict.BETTER
    (crashed,) = won.crashes
    assert (crashed.kind, crashed.iterations) == (SessionKind.SCREEN, 40)
    assert "SIGSEGV" in crashed.message
    assert crashed.log_tail == "the last words"
    assert one.rests == [20.0]
    screened = next(row for row in one.state.sessions(found.tuning.id, raw=True))
    assert screened.raw is not None
    assert sum(screened.raw["this"]["turns"]) == 20


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [(FailureClass.CRASH, Verdict.CRASHED), (FailureClass.TIMEOUT, Verdict.TIMED_OUT)],
)
def test_a_build_that_crashes_twice_has_crashed(
    stage: Play, failure: FailureClass, verdict: Verdict
) -> None:
    def hook(op: str, key: str, build: str) -> Any:
        if (op, build) == ("bench_run", "opset18"):
            return BuildFailed(failure, "measure", "the process is gone")
        return None

    one = stage({18: 0.5, 19: 0.8}, hook=hook)
    found = one.played()
    lost = trial(found, 18)
    assert (lost.verdict, lost.why, len(lost.crashes)) == (verdict, "the process is gone", 2)
    assert one.rests == [20.0]
    assert found.tuning.champion == "opset-19"


def test_a_baseline_that_crashes_beside_a_trial_is_named(stage: Play) -> None:
    def hook(op: str, key: str, _build: str) -> Any:
        return crash() if (op, key) == ("bench_run", "null") else None

    found = stage({19: 0.8}, hook=hook).played()
    assert trial(found, 19).why.startswith("the baseline beside it: ")


def test_a_model_that_cannot_be_opened_is_not_tried_twice(stage: Play) -> None:
    def hook(op: str, _key: str, build: str) -> Any:
        wrong = (op, build) == ("bench_open", "opset19")
        return {"at": "open", "error": "no kernel"} if wrong else None

    one = stage({19: 0.8}, hook=hook)
    lost = trial(one.played(), 19)
    assert (lost.verdict, lost.why, len(lost.crashes)) == (Verdict.CRASHED, "no kernel", 1)
    assert one.rests == []


def test_what_does_not_fit_is_skipped_with_the_reason(stage: Play) -> None:
    one = stage({19: 0.8})
    one.steps += [
        step(hypothesis(18), skip="there is no Conv in the graph"),
        step(hypothesis(99)),
        step(hypothesis(20, compiled="*")),
    ]
    found = one.played()
    told = {key: found.trial(key) for key in ("opset-18", "opset-99", "opset-20")}
    assert {one.verdict for one in told.values() if one} == {Verdict.SKIPPED}
    reasons = [one.why for one in told.values() if one]
    assert reasons[0] == "there is no Conv in the graph"
    assert "takes opsets" in reasons[1]
    assert "no device profile" in reasons[2]
    assert one.told == ["opset-19", "opset-18", "opset-99", "opset-20"]


def test_drift_is_told_of_the_build_that_has_it(stage: Play) -> None:
    one = stage({19: 1.0})
    speeds = iter([1.0, 1.0, 1.1, 1.2])

    def hook(op: str, key: str, build: str) -> Any:
        if (op, key, build) == ("bench_open", "this", "opset19"):
            one.runtimes.times[build] = always(round(1_000_000 * next(speeds)))

    one.hook = hook
    # A busy machine is told too.
    told = [line for line in trial(one.played(), 19).warnings if "session" in line]
    assert len(told) == 1
    assert told[0].startswith("opset-19: the last session was 20% slower than the first")
