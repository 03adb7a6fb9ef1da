"""A tuning that is interrupted anywhere goes on where it was, and says the same in the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flows.tune.record import Recorded
from matrix.trials import TuningStatus, Verdict
from state.state import open_state
from tests.measuring.runtimes import CPU, crash
from tests.tunings.fakes import Play, Stage

TIMES = {18: 1.6, 19: 0.8, 20: 1.0, 21: 0.7}


def told(found: Recorded) -> list[Any]:
    """All trials without the time that they took."""
    return [replace(one, seconds=0.0, making=None) for one in found.trials]


def sessions(one: Stage) -> list[Any]:
    """What is kept of every session, but when."""
    rows = one.state.sessions(one.found().tuning.id, raw=True)
    return sorted(
        (row.trial, row.kind, row.number, row.detail["order"], str(row.raw)) for row in rows
    )


def killed_at(one: Stage, event: int) -> bool:
    """Run it, and kill it when the event of that number begins; False: it came to its end."""
    left = iter(range(event))

    def happens(*_about: object) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt

    one.hook = lambda op, key, _build: (
        happens() if op == "bench_open" or (op, key) == ("bench_close", "null") else None
    )
    make, check = one.maker.make, one.maker.check
    kept = one.state.keep_trial
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(one.maker), "make", lambda _self, *about: happens() or make(*about))
        patched.setattr(type(one.maker), "check", lambda _self, *about: happens() or check(*about))
        patched.setattr(
            one.state, "keep_trial", lambda *about: happens() or kept(*about), raising=False
        )
        try:
            one.run()
        except KeyboardInterrupt:
            return True
    return False


def test_a_tuning_that_is_killed_at_every_step_ends_like_one_that_is_not(
    stage: Play, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one = stage(TIMES)
    one.begin()
    kills = 0
    while killed_at(one, kills):
        kills += 1
        assert one.found().tuning.status in {TuningStatus.RUNNING, TuningStatus.PLANNED}
    assert kills > 15
    assert one.planned == 1
    assert one.found().tuning.status is TuningStatus.DONE
    other = _undisturbed(one, tmp_path_factory)
    assert told(one.found()) == told(other.found())
    assert sessions(one) == sessions(other)
    other.state.close()


def _undisturbed(one: Stage, folders: pytest.TempPathFactory) -> Stage:
    state = open_state(folders.mktemp("other") / "state.db")
    other = Stage(state, one.cell, one.times, one.steps)
    other.begin()
    other.run()
    return other


def test_a_resume_measures_only_what_is_missing(stage: Play) -> None:
    one = stage({19: 0.8})
    one.begin()
    opened = []

    def hook(op: str, key: str, _build: str) -> Any:
        opened.append(op)
        if (op, key) == ("bench_open", "null") and opened.count("bench_close") == 1 + 3 * 3:
            raise KeyboardInterrupt
        return None

    one.hook = hook
    with pytest.raises(KeyboardInterrupt):
        one.run()
    done = one.state.sessions(one.found().tuning.id)
    assert len(done) == 3, "the screening and two sessions of the comparison"
    one.hook = None
    assert one.run().tuning.champion == "opset-19"
    assert one.sessions() == 7 - 3


def test_a_tuning_that_is_done_does_nothing_more(stage: Play) -> None:
    one = stage({19: 0.8})
    one.begin()
    before = told(one.run())
    assert told(one.run()) == before
    assert one.sessions() == 0
    assert one.planned == 1


def test_a_crash_counts_after_a_kill(stage: Play) -> None:
    """The first try crashed, the process was killed during the rest: one try is left."""
    one = stage({19: 0.8})
    one.begin()

    def hook(op: str, key: str, build: str) -> Any:
        return crash() if (op, key, build) == ("bench_run", "this", "opset19") else None

    one.hook = hook
    one.rests = _Interrupted()
    with pytest.raises(KeyboardInterrupt):
        one.run()
    one.rests = []
    trial = one.run().trial("opset-19")
    assert trial is not None
    assert (trial.verdict, len(trial.crashes), one.rests) == (Verdict.CRASHED, 2, [])


class _Interrupted(list[float]):
    def append(self, _seconds: float) -> None:
        raise KeyboardInterrupt


def test_a_budget_stops_before_what_cannot_be_finished_and_a_resume_goes_on(stage: Play) -> None:
    one = stage({18: 0.9, 19: 0.8, 20: 0.7}, budget=60.0)
    one.begin()

    class Slow(list[str]):
        def append(self, key: str) -> None:
            super().append(key)
            one.now += 29.0

    one.told = Slow()
    found = one.run()
    assert found.tuning.status is TuningStatus.OUT_OF_TIME
    assert one.told == ["opset-18", "opset-19"]
    assert found.tuning.champion == "opset-19", "the best so far stands"
    assert "opset-20 was not begun" in found.tuning.message
    one.budget = None
    found = one.run()
    assert found.tuning.status is TuningStatus.DONE
    assert (found.tuning.champion, found.tuning.message) == ("opset-20", "")


def test_a_budget_of_nothing_begins_nothing(stage: Play) -> None:
    one = stage({19: 0.8}, budget=0.5)
    found = one.played()
    assert found.tuning.status is TuningStatus.OUT_OF_TIME
    assert one.sessions() == 0


@pytest.mark.parametrize("what", ["baseline", "runtime"])
def test_sessions_of_other_builds_and_runtimes_are_not_mixed(stage: Play, what: str) -> None:
    one = stage({19: 0.8}, budget=0.5)
    one.played()
    one.budget = None
    if what == "baseline":
        one.maker.artifacts["opset17"] = "opset19"
    else:
        one.maker.runtime = replace(CPU, version="2.0")
    found = one.run()
    assert found.tuning.status is TuningStatus.FAILED
    assert "begin a new tuning" in found.tuning.message
    assert one.sessions() == 0


def test_a_trial_whose_artifact_changed_is_measured_anew(stage: Play) -> None:
    one = stage({19: 0.8})
    one.begin()
    runs = iter(range(60))

    def hook(op: str, key: str, _build: str) -> Any:
        if (op, key) == ("bench_run", "other") and next(runs, None) is None:
            raise KeyboardInterrupt
        return None

    one.hook = hook
    with pytest.raises(KeyboardInterrupt):
        one.run()
    one.hook = None
    one.maker.artifacts["opset19"] = "other"
    one.times["other"] = 900_000
    trial = one.run().trial("opset-19")
    assert trial is not None
    assert trial.judgement is not None
    assert trial.judgement.ratio == pytest.approx(0.9, rel=1e-3)
