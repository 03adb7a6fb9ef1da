"""What may be said of a comparison, on noise of many kinds; `tests.bench.measure` has all."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.measuring.noise import KINDS, drawn, experiment, gaussian, recorded
from workers.measure.verdict import Round, Verdict, judge

CLAIMS = {Verdict.FASTER, Verdict.SLOWER}


@pytest.mark.parametrize(
    "kind",
    ["sessions differ by 3 %", "very heavy-tailed", "bimodal turns", "bimodal sessions",
     "drifting by 30 %", "wandering"],
)  # fmt: skip
def test_a_model_against_itself_is_neither_faster_nor_slower(kind: str) -> None:
    random = np.random.default_rng(7)
    said = Counter(judge(experiment(KINDS[kind], random), n).verdict for n in range(200))
    assert sum(said[one] for one in CLAIMS) <= 10, said


@pytest.mark.parametrize("kind", ["heavy-tailed", "bimodal runs, far apart", "drifting by 30 %"])
def test_ten_percent_are_found_where_the_noise_floor_allows_it(kind: str) -> None:
    random = np.random.default_rng(8)
    found = [judge(experiment(KINDS[kind], random, slower=0.1), n) for n in range(100)]
    clear = [one for one in found if one.floor < 0.05]
    assert len(clear) > 50
    assert sum(one.verdict is Verdict.SLOWER for one in clear) >= 0.9 * len(clear)
    assert not any(one.verdict is Verdict.FASTER for one in found)


def rounds(this: float, other: float = 1.0, null: float = 1.0, count: int = 10) -> list[Round]:
    return [Round(this, other, null)] * count


def test_the_ratio_is_of_the_subject_over_the_other() -> None:
    faster = judge([rounds(0.8)] * 3, 0)
    assert faster.verdict is Verdict.FASTER
    assert faster.ratio == pytest.approx(0.8)
    assert faster.by_session == pytest.approx((0.8, 0.8, 0.8))
    slower = judge([rounds(1.25)] * 3, 0)
    assert slower.verdict is Verdict.SLOWER
    assert slower.ratio == pytest.approx(1.25)
    assert "all 3 sessions agree" in slower.why


def test_less_than_one_percent_is_no_difference_however_certain() -> None:
    found = judge([rounds(1.009)] * 3, 0)
    assert found.verdict is Verdict.SAME
    assert "below 1%" in found.why


def test_a_single_session_tells_nothing() -> None:
    found = judge([rounds(2.0)], 0)
    assert found.verdict is Verdict.NOISY
    assert "single session" in found.why


def test_a_difference_within_the_null_run_is_not_claimed() -> None:
    found = judge([rounds(1.1, 1.0, 1.12), rounds(1.1), rounds(1.1)], 0)
    assert found.verdict is Verdict.NOISY
    assert found.floor >= 0.12
    assert "within the noise" in found.why


def test_sessions_that_do_not_agree_claim_nothing() -> None:
    found = judge([rounds(1.3), rounds(1.3), rounds(1.3), rounds(1.3), rounds(1.01)], 0)
    assert found.verdict is Verdict.NOISY
    assert "do not agree" in found.why


def test_more_sessions_see_smaller_differences() -> None:
    random = np.random.default_rng(9)
    noise = gaussian(0.02, between=0.03)
    few = [judge(experiment(noise, random, 0.1, sessions=2), n) for n in range(20)]
    many = [judge(experiment(noise, random, 0.1, sessions=12), n) for n in range(20)]
    assert np.mean([one.high - one.low for one in many]) < np.mean(
        [one.high - one.low for one in few]
    )


def test_the_same_rounds_give_the_same_numbers() -> None:
    data = experiment(KINDS["wandering"], np.random.default_rng(3))
    assert judge(data, 5) == judge(data, 5)


def test_recorded_sessions_of_a_busy_machine_claim_nothing_and_hide_nothing() -> None:
    random = np.random.default_rng(11)
    for name, sessions in recorded().items():
        said = Counter(judge(drawn(sessions, random), n).verdict for n in range(100))
        assert sum(said[one] for one in CLAIMS) <= 5, (name, said)
    sessions = recorded()["mlas_cpu, 1 thread"]
    slower = [judge(drawn(sessions, random, slower=0.1), n) for n in range(100)]
    clear = [one for one in slower if one.floor < 0.05]
    assert len(clear) > 20
    assert sum(one.verdict is Verdict.SLOWER for one in clear) >= 0.9 * len(clear)


def test_who_says_what_matters_decides_when_the_data_are_too_noisy() -> None:
    data = [rounds(1.0, 1.0, null) for null in (1.03, 1.0, 0.97)]
    assert judge(data, 0).verdict is Verdict.SAME
    assert judge(data, 0, matters=0.01).verdict is Verdict.NOISY
