"""Quantizing again: the order of the steps, when it ends, what is kept and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from workers.optimum_engine import attempts, layout, losses
from workers.optimum_engine.attempts import ASKED, Attempt, Ranking, ranking, search, told
from workers.optimum_engine.losses import Distance
from workers.optimum_engine.qdq import Settings

ALL = tuple(layout.STEPS)
FIRST = Settings("w8a16")
OPERATORS = ["a", "b", "c", "d", "e", "f", "g", "h"]


def attempt(step: str, cosine: float, settings: Settings = FIRST) -> Attempt:
    return Attempt(step, settings, Distance(cosine, "" if cosine >= 0.95 else "too far"))


def rank(_attempt: Attempt) -> Ranking:
    return Ranking(OPERATORS, frozenset({"sum"}))


def tried(cosines: Sequence[float], steps: Sequence[str] = ALL) -> list[Attempt]:
    """The attempts if they reach these cosines, one after the other."""
    left = list(cosines[1:])
    return search(
        attempt(ASKED, cosines[0]), steps, lambda step, how: attempt(step, left.pop(0), how), rank
    )


def test_a_graph_that_reaches_parity_is_not_touched() -> None:
    found = tried([0.96])
    assert [one.step for one in found] == [ASKED]
    assert told(found) == {}


def test_the_order_is_fixed_and_ends_with_the_first_that_passes() -> None:
    assert ALL == ("percentile", "channels", "wide", "wider", "float")
    found = tried([0.5, 0.6, 0.7, 0.96, 0.99])
    assert [one.step for one in found] == [ASKED, "percentile", "channels", "wide"]
    assert told(found) == {
        "attempts": [
            {"step": ASKED, "cosine": 0.5},
            {"step": "percentile", "cosine": 0.6},
            {"step": "channels", "cosine": 0.7},
            {"step": "wide", "cosine": 0.96},
        ],
        "applied": "wide",
        "wide": ["a", "b"],
        "notice": "quantized again: percentile calibration, MatMul per channel, "
        "2 operators with 16 bits, cosine 0.500 -> 0.960",
    }


def test_a_step_that_makes_it_worse_is_left_out_of_the_next_ones() -> None:
    found = tried([0.5, 0.4, 0.6, 0.55, 0.7, 0.8])
    assert [one.settings.calibration for one in found] == [
        "minmax", "percentile", "minmax", "minmax", "minmax", "minmax"
    ]  # fmt: skip
    last = found[-1].settings
    assert last.floats == {"a", "b", "sum"}
    assert last.wide == {"c", "d"}
    assert "MatMul" in last.per_channel


def test_half_of_the_operators_at_most_get_more_bits() -> None:
    found = tried([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert found[3].settings.wide == {"a", "b"}
    assert found[4].settings.wide == {"a", "b", "c", "d"}
    single = search(
        attempt(ASKED, 0.1),
        ["wide", "float"],
        lambda *_: pytest.fail("tried"),
        lambda _: Ranking(["a"]),
    )
    assert len(single) == 1


def test_without_a_passing_graph_the_best_is_kept_and_the_notice_says_so() -> None:
    found = tried([0.5, 0.9, 0.7, 0.6, 0.6, 0.6])
    assert attempts.best(found).step == "percentile"
    assert told(found)["notice"] == (
        "quantized again: percentile calibration, cosine 0.500 -> 0.900 (still misses parity)"
    )
    vain = tried([0.9, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert told(vain)["notice"] == "quantized in 6 ways, none better: cosine 0.900"
    assert told(vain)["applied"] == ASKED


def test_differences_of_the_last_digits_decide_nothing() -> None:
    found = tried([0.9, 0.90001, 0.8, 0.8, 0.8, 0.8])
    assert attempts.best(found).step == ASKED


def test_what_does_not_change_the_settings_is_not_tried() -> None:
    found = search(
        attempt(ASKED, 0.1, replace(FIRST, calibration="percentile")),
        ["percentile"],
        lambda *_: pytest.fail("tried"),
        rank,
    )
    assert len(found) == 1


def test_the_limit_leaves_something_to_spare() -> None:
    limit = losses.limit_of({"cosine": 0.95, "max_abs": 0.5})
    assert limit.cosine == pytest.approx(0.955)
    assert limit.max_abs == 0.5
    wanted = [{"y": np.array([1.0, 0.0])}]
    near = losses.distance([{"y": np.array([1.0, 0.1])}], wanted, limit)
    assert near.fault == ""
    assert near.cosine > 0.99
    far = losses.distance([{"y": np.array([1.0, 0.32])}], wanted, limit)
    assert 0.95 < far.cosine < 0.955
    assert far.fault.startswith("y: cosine 0.952")
    scaled = losses.distance([{"y": np.array([2.0, 0.0])}], wanted, limit)
    assert "is a scale wrong?" in scaled.fault
    broken = losses.distance([{"y": np.array([np.nan, 0.0])}], wanted, limit)
    assert broken == Distance(-1.0, "y: it holds NaN or infinity")


def test_weights_rank_in_w8a16_and_results_in_w8a8() -> None:
    weights, results = {"a": 0.3, "b": 0.2, "c": 0.20001}, {"b": 0.5, "a": 0.05, "sub": 0.2}
    assert ranking("w8a16", weights, results) == Ranking(["a", "b", "c"], frozenset({"b", "sub"}))
    assert ranking("w8a8", weights, results).names == ["b", "a", "c"]
