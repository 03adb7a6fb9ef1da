"""Every verdict that a trial can have, and the round of combinations, on builds of known times."""

from __future__ import annotations

from typing import Any

import pytest

from flows.tune import measuring
from flows.tune.record import BASELINE, Recorded, Trial
from matrix.hypotheses import Hypothesis
from matrix.status import FailureClass
from matrix.trials import Phase, SessionKind, TuningStatus, Verdict
from tests.measuring.runtimes import NPU, always, crash
from tests.tunings.fakes import PROTOCOL, FakeMaker, Play, Stage, hypothesis, step
from workers.build.stages import Rung
from workers.errors import BuildFailed
from workers.measure.verdict import judge


def played(one: Stage) -> Recorded:
    one.begin()
    return one.run()


def trial(found: Recorded, opset: int) -> Trial:
    one = found.trial(f"opset-{opset}")
    assert one is not None
    return one


def test_a_faster_build_is_confirmed_with_the_roles_swapped_and_becomes_champion(
    stage: Play,
) -> None:
    one = stage({19: 0.8})
    found = played(one)
    won = trial(found, 19)
    assert (won.verdict, found.tuning.champion) == (Verdict.BETTER, "opset-19")
    assert won.judgement is not None
    assert won.judgement.ratio == pytest.approx(0.8, rel=1e-3)
    assert len(won.judgement.by_session) == len(won.judgement.null_by_session) == 3
    assert won.confirmation is not None
    assert won.confirmation.ratio == pytest.approx(1.25, rel=1e-3)
    assert won.gain is not None
    assert won.gain.gain == pytest.approx(20, rel=1e-2)
    assert (found.tuning.status, found.tuning.message) == (TuningStatus.DONE, "")
    kinds = [(row.kind, row.number) for row in one.state.sessions(found.tuning.id)]
    assert kinds == [
        (SessionKind.SCREEN, 1),
        *((SessionKind.COMPARISON, number) for number in (1, 2, 3)),
        *((SessionKind.CONFIRMATION, number) for number in (1, 2, 3)),
    ]


def test_no_difference_has_to_be_as_precise_as_the_gain_that_is_asked_for(
    stage: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    precise: list[float] = []

    def judged(*about: Any) -> Any:
        precise.append(about[3])
        return judge(*about)

    monkeypatch.setattr(measuring, "judge", judged)
    one = stage({19: 0.99})
    one.begin(min_gain=2.0)
    one.run()
    assert set(precise) == {0.02}


def test_everything_that_a_verdict_rests_on_is_recorded(stage: Play) -> None:
    one = stage({19: 0.8})
    found = played(one)
    base, won = found.trial(BASELINE), trial(found, 19)
    assert base is not None
    assert (base.phase, base.verdict, base.position) == (Phase.BASELINE, None, 0)
    assert (won.phase, won.position, won.settings) == (Phase.SINGLE, 1, ("opset=19",))
    assert won.cell == "opset19"
    assert won.making is not None
    assert (won.making.ran, won.making.reused) == (("optimize",), ("export",))
    assert [rung.name for rung in won.accuracy][-2:] == ["parity", "task"]
    assert won.screen == pytest.approx(0.8, rel=1e-3)
    tuning = found.tuning
    assert (tuning.insight, tuning.architecture, tuning.notes) == (
        {"nodes": 7},
        "bert",
        ("a note",),
    )
    assert tuning.baseline_ms == pytest.approx(1.0, rel=1e-3)
    assert tuning.machine is not None
    assert tuning.runtime is not None
    assert tuning.runtime.provider == "CPUExecutionProvider"
    assert 0 < tuning.measuring < tuning.spent
    (row,) = [
        row
        for row in one.state.sessions(tuning.id, "opset-19", raw=True)
        if (row.kind, row.number) == (SessionKind.COMPARISON, 2)
    ]
    assert row.detail["p50"]["this"] == pytest.approx(0.8, rel=1e-3)
    assert row.raw is not None
    assert sum(row.raw["this"]["turns"]) == PROTOCOL.iterations


@pytest.mark.parametrize(
    ("ms", "verdict"),
    [(0.97, Verdict.NO_DIFFERENCE), (1.0, Verdict.NO_DIFFERENCE), (1.2, Verdict.WORSE)],
)
def test_what_is_not_faster_is_not_confirmed(stage: Play, ms: float, verdict: Verdict) -> None:
    one = stage({19: ms})
    found = played(one)
    assert trial(found, 19).verdict is verdict
    assert found.tuning.champion == ""
    assert one.sessions() == 4


def test_a_hopeless_trial_is_measured_no_further_than_its_screening(stage: Play) -> None:
    one = stage({19: 1.6})
    found = played(one)
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
    found = played(one)
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
    assert trial(played(one), 19).verdict in {Verdict.TOO_NOISY, Verdict.WORSE}


def test_the_same_artifact_is_not_measured_again(stage: Play) -> None:
    one = stage({18: 0.9, 19: 0.9, 20: 1.0})
    one.maker.artifacts = {"opset19": "opset18", "opset20": "opset17"}
    found = played(one)
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
    found = played(one)
    wrong = trial(found, 19)
    assert (wrong.verdict, wrong.why) == (verdict, f"{rung}: off by 3")
    assert one.sessions() == 0
    assert found.tuning.status is TuningStatus.DONE


def test_accuracy_that_cannot_be_judged_is_none(stage: Play) -> None:
    one = stage({19: 0.5})
    one.maker.broken["opset19"] = Rung("parity", None, "not run: because there is no export")
    assert trial(played(one), 19).verdict is Verdict.INACCURATE


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
    found = played(one)
    lost = trial(found, 18)
    assert (lost.verdict, lost.why) == (verdict, "optimize: no such pass (look)")
    assert trial(found, 19).verdict is Verdict.BETTER


def test_an_error_of_any_kind_costs_its_trial_only(stage: Play) -> None:
    one = stage({18: 0.8, 19: 0.8})
    one.maker.failing["opset18"] = ZeroDivisionError("oh")
    found = played(one)
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
    found = played(one)
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
    found = played(one)
    lost = trial(found, 18)
    assert (lost.verdict, lost.why, len(lost.crashes)) == (verdict, "the process is gone", 2)
    assert one.rests == [20.0]
    assert found.tuning.champion == "opset-19"


def test_a_baseline_that_crashes_beside_a_trial_is_named(stage: Play) -> None:
    def hook(op: str, key: str, _build: str) -> Any:
        return crash() if (op, key) == ("bench_run", "null") else None

    found = played(stage({19: 0.8}, hook=hook))
    assert trial(found, 19).why.startswith("the baseline beside it: ")


def test_a_model_that_cannot_be_opened_is_not_tried_twice(stage: Play) -> None:
    def hook(op: str, _key: str, build: str) -> Any:
        wrong = (op, build) == ("bench_open", "opset19")
        return {"at": "open", "error": "no kernel"} if wrong else None

    one = stage({19: 0.8}, hook=hook)
    lost = trial(played(one), 19)
    assert (lost.verdict, lost.why, len(lost.crashes)) == (Verdict.CRASHED, "no kernel", 1)
    assert one.rests == []


def test_what_does_not_fit_is_skipped_with_the_reason(stage: Play) -> None:
    one = stage({19: 0.8})
    one.steps += [
        step(hypothesis(18), skip="there is no Conv in the graph"),
        step(hypothesis(99)),
        step(hypothesis(20, compiled="*")),
    ]
    found = played(one)
    told = {key: found.trial(key) for key in ("opset-18", "opset-99", "opset-20")}
    assert {one.verdict for one in told.values() if one} == {Verdict.SKIPPED}
    reasons = [one.why for one in told.values() if one]
    assert reasons[0] == "there is no Conv in the graph"
    assert "takes opsets" in reasons[1]
    assert "no device profile" in reasons[2]
    assert one.told == ["opset-19", "opset-18", "opset-99", "opset-20"]


def test_what_was_confirmed_is_tried_together(stage: Play) -> None:
    session = Hypothesis(
        id="level", title="Level", targets=("*",), axis="runtime", runtime={"level": "basic"}
    )
    one = stage({19: 0.8, 20: 0.7, 21: 1.0}, session)
    one.times |= {"opset17-basic": 900_000, "opset20-basic": 600_000}
    found = played(one)
    assert found.tuning.combinations is not None
    (both,) = found.tuning.combinations
    assert (both.key, both.hypotheses) == ("opset-20+level", ("opset-20", "level"))
    assert "without opset-19" in both.why
    won = found.champion
    assert won is not None
    assert (won.key, won.phase, won.verdict) == (
        "opset-20+level", Phase.COMBINATION, Verdict.BETTER,
    )  # fmt: skip
    assert won.settings == ("opset=20", "runtime=level:basic")


def test_a_single_winner_is_not_combined(stage: Play) -> None:
    found = played(stage({19: 0.8, 20: 1.0}))
    assert found.tuning.combinations == ()


def test_the_correction_counts_the_trials_that_are_planned(
    stage: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def level(trials: int) -> float:
        asked.append(trials)
        return 0.05 / trials

    monkeypatch.setattr("flows.tune.tuning.level", level)
    one = stage({18: 1.0, 19: 1.0, 20: 1.0})
    one.steps.append(step(hypothesis(21), skip="no"))
    played(one)
    assert asked == [4]


def test_an_emulator_has_no_champion(stage: Play) -> None:
    found = played(stage({19: 0.8}, maker=FakeMaker(runtime=NPU)))
    won = trial(found, 19)
    assert won.verdict is Verdict.BETTER
    assert won.why.endswith("on an emulator, which is no evidence for the device")
    assert (found.tuning.emulated, found.tuning.champion) == (True, "")


def test_all_graphs_of_a_composite_count_together(stage: Play) -> None:
    one = stage({19: 0.8}, maker=FakeMaker(components=("decoder", "encoder")))
    found = played(one)
    won = trial(found, 19)
    assert won.verdict is Verdict.BETTER
    assert won.judgement is not None
    assert len(won.judgement.by_session) == 3
    assert one.sessions() == 14
    assert found.tuning.baseline_ms == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("rung", ["parity", "loads"])
def test_without_a_baseline_that_holds_nothing_is_tried(stage: Play, rung: str) -> None:
    one = stage({19: 0.8})
    one.maker.broken["opset17"] = Rung(rung, False, "off by 3")
    found = played(one)
    assert found.tuning.status is TuningStatus.FAILED
    assert f"the baseline itself does not hold: {rung}: off by 3" in found.tuning.message
    assert found.trials == ()


def test_a_baseline_that_cannot_be_built_or_measured_ends_the_tuning(stage: Play) -> None:
    one = stage({19: 0.8})
    one.maker.failing["opset17"] = BuildFailed(FailureClass.EXPORT, "export", "no such model")
    assert played(one).tuning.message == "export: no such model"
    del one.maker.failing["opset17"]
    one.hook = lambda op, _key, _build: crash() if op == "bench_run" else None
    assert "the baseline cannot be measured" in one.run().tuning.message
    one.hook = None
    assert one.run().tuning.status is TuningStatus.DONE


def test_measurements_have_the_machine_alone(stage: Play) -> None:
    one = stage({19: 1.0})
    played(one)
    assert one.quiet == ["a/b:fill-mask: baseline", "opset-19: screen", "opset-19: comparison"]


def test_drift_is_told_of_the_build_that_has_it(stage: Play) -> None:
    one = stage({19: 1.0})
    speeds = iter([1.0, 1.0, 1.1, 1.2])

    def hook(op: str, key: str, build: str) -> Any:
        if (op, key, build) == ("bench_open", "this", "opset19"):
            one.runtimes.times[build] = always(round(1_000_000 * next(speeds)))

    one.hook = hook
    told = trial(played(one), 19).warnings
    assert len(told) == 1
    assert told[0].startswith("opset-19: the last session was 20% slower than the first")
