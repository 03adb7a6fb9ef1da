"""A tuning from its baseline to its champion, on builds of known times."""

from __future__ import annotations

from typing import Any

import pytest

from flows.tune import measuring
from flows.tune.record import BASELINE
from matrix.hypotheses import Hypothesis
from matrix.status import FailureClass
from matrix.trials import Phase, SessionKind, TuningStatus, Verdict
from matrix.verification import Rung
from tests.measuring.runtimes import NPU, crash
from tests.tunings.fakes import PROTOCOL, FakeMaker, Play, hypothesis, step, trial
from workers.errors import BuildFailed
from workers.measure.verdict import judge


def test_a_faster_build_is_confirmed_with_the_roles_swapped_and_becomes_champion(
    stage: Play,
) -> None:
    one = stage({19: 0.8})
    found = one.played()
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
    found = one.played()
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


def test_what_was_confirmed_is_tried_together(stage: Play) -> None:
    session = Hypothesis(
        id="level", title="Level", targets=("*",), axis="runtime", runtime={"level": "basic"}
    )
    one = stage({19: 0.8, 20: 0.7, 21: 1.0}, session)
    one.times |= {"opset17-basic": 900_000, "opset20-basic": 600_000}
    found = one.played()
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
    found = stage({19: 0.8, 20: 1.0}).played()
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
    one.played()
    assert set(asked) == {4}


def test_an_emulator_has_no_champion(stage: Play) -> None:
    found = stage({19: 0.8}, maker=FakeMaker(runtime=NPU)).played()
    won = trial(found, 19)
    assert won.verdict is Verdict.BETTER
    assert won.why.endswith("on an emulator, which is no evidence for the device")
    assert (found.tuning.emulated, found.tuning.champion) == (True, "")


def test_all_graphs_of_a_composite_count_together(stage: Play) -> None:
    one = stage({19: 0.8}, maker=FakeMaker(components=("decoder", "encoder")))
    found = one.played()
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
    found = one.played()
    assert found.tuning.status is TuningStatus.FAILED
    assert f"the baseline fails verification: {rung}: off by 3" in found.tuning.message
    assert found.trials == ()


def test_a_baseline_that_cannot_be_built_or_measured_ends_the_tuning(stage: Play) -> None:
    one = stage({19: 0.8})
    one.maker.failing["opset17"] = BuildFailed(FailureClass.EXPORT, "export", "no such model")
    assert one.played().tuning.message == "export: no such model"
    del one.maker.failing["opset17"]
    one.hook = lambda op, _key, _build: crash() if op == "bench_run" else None
    assert "the baseline cannot be measured" in one.run().tuning.message
    one.hook = None
    assert one.run().tuning.status is TuningStatus.DONE


def test_measurements_have_the_machine_alone(stage: Play) -> None:
    one = stage({19: 1.0})
    one.played()
    assert one.quiet == ["a/b:fill-mask: baseline", "opset-19: screen", "opset-19: comparison"]
