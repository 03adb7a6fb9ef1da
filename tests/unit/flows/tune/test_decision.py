"""Verdicts on trials, from comparisons with known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flows.tune.decision import confirm, decide, level, swapped
from matrix.trials import Verdict
from tests.bench.tune import draws, npu, ours, tuning
from workers.measure.verdict import Round, judge, student


def comparison(ratio: float, noise: float = 0.001, sessions: int = 3) -> list[list[Round]]:
    random = np.random.default_rng(5)
    return [
        [Round(*(one * np.exp(random.normal(0, noise)) for one in (ratio, 1.0, 1.0)))] * 10
        for _ in range(sessions)
    ]


@pytest.mark.parametrize(
    ("ratio", "verdict", "why"),
    [
        (0.85, Verdict.BETTER, "all 3 sessions agree"),
        (0.97, Verdict.NO_DIFFERENCE, "3.0 % faster, which is less than 5 %"),
        (1.0, Verdict.NO_DIFFERENCE, "below 1%"),
        (1.03, Verdict.NO_DIFFERENCE, "3.0 % slower, which is less than 5 %"),
        (1.2, Verdict.WORSE, "all 3 sessions agree"),
    ],
)
def test_a_difference_counts_from_the_least_gain_on(
    ratio: float, verdict: Verdict, why: str
) -> None:
    found = decide(judge(comparison(ratio, 0.0001), 0), 5)
    assert (found.verdict, why in found.why) == (verdict, True), found
    assert found.gain == pytest.approx((1 - ratio) * 100, abs=0.1)
    assert found.low <= found.gain <= found.high


def test_noise_is_no_result_however_large_the_difference_looks() -> None:
    found = decide(judge(comparison(0.9, noise=0.2), 0), 5)
    assert found.verdict is Verdict.TOO_NOISY
    assert found.floor > 5


def test_a_confirmation_is_told_of_the_candidate() -> None:
    """The baseline is the subject: slower by a quarter means that the candidate gains a fifth."""
    found = confirm(judge(comparison(1.25, 0.0001), 0), 5)
    assert found.verdict is Verdict.BETTER
    assert found.gain == pytest.approx(20, abs=0.1)
    assert found.low < found.gain < found.high
    assert confirm(judge(comparison(0.8, 0.0001), 0), 5).verdict is Verdict.WORSE
    assert confirm(judge(comparison(1.0, 0.0001), 0), 5).verdict is Verdict.NO_DIFFERENCE


def test_swapping_twice_changes_nothing() -> None:
    found = judge(comparison(0.8), 0)
    twice = swapped(swapped(found))
    assert twice.ratio == pytest.approx(found.ratio)
    assert replace(twice, ratio=0, low=0, high=0, by_session=()) == replace(
        found, ratio=0, low=0, high=0, by_session=()
    )


def test_more_trials_widen_the_intervals() -> None:
    """A difference that one comparison may claim is too little among eleven."""
    rounds = comparison(0.9, noise=0.01)
    alone, among = (judge(rounds, 0, level(count)) for count in (1, 11))
    assert (level(1), level(0)) == (0.05, 0.05)
    assert among.low < alone.low < alone.high < among.high


@pytest.mark.parametrize(
    ("freedom", "share", "quantile"),
    [(1, 0.05, 12.706), (2, 0.05, 4.303), (5, 0.05, 2.571), (5, 0.01, 4.032), (20, 0.05, 2.086)],
)
def test_the_quantiles_are_those_of_the_tables(freedom: int, share: float, quantile: float) -> None:
    assert student(freedom, share) == pytest.approx(quantile, abs=0.001)


def test_a_gain_is_found_at_five_percent_of_noise() -> None:
    random = np.random.default_rng(1)
    found = [tuning(ours, draws()["CV 5 %"], random) for _ in range(5)]
    assert sum(one["found"] for one in found) == 5
    assert sum(one["false"] for one in found) == 0


@pytest.mark.parametrize("kind", ["sessions differ by 10 %", "two speeds of the machine"])
def test_what_changes_nothing_is_not_called_better(kind: str) -> None:
    random = np.random.default_rng(1)
    assert sum(tuning(ours, draws()[kind], random)["false"] for _ in range(5)) == 0


def test_a_baseline_from_another_time_makes_false_winners() -> None:
    """What the older rule claims of the same noise: the reason why ours takes turns."""
    random = np.random.default_rng(1)
    draw = draws()["two speeds of the machine"]
    assert sum(tuning(npu, draw, random)["false"] for _ in range(40)) > 4
