"""Quantizing again: the order of the steps, when it ends, what is kept and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.engines import graphs
from workers.numerics.compare import MOST_DB
from workers.optimum_engine import attempts, engine, losses
from workers.optimum_engine.attempts import ASKED, Attempt, Ranking, search, told
from workers.optimum_engine.label import Sizes
from workers.optimum_engine.losses import Distance
from workers.optimum_engine.qdq import Settings

ALL = tuple(engine.STEPS)
FIRST = Settings("w8a16")
NONE = Sizes({}, {})
OPERATORS = ["a", "b", "c", "d", "e", "f", "g", "h"]


def attempt(step: str, snr: float, settings: Settings = FIRST) -> Attempt:
    return Attempt(step, settings, Distance(snr, "" if snr >= 20 else "too far"))


def rank(_attempt: Attempt) -> Ranking:
    return Ranking(OPERATORS, NONE, lambda: 4, frozenset({"sum"}))


def tried(figures: Sequence[float], steps: Sequence[str] = ALL) -> list[Attempt]:
    """The attempts if they are so many decibels good, one after the other."""
    left = list(figures[1:])
    return search(
        attempt(ASKED, figures[0]), steps, lambda step, how: attempt(step, left.pop(0), how), rank
    )


def test_a_graph_that_reaches_parity_is_not_touched() -> None:
    found = tried([21])
    assert [one.step for one in found] == [ASKED]
    assert told(found) == {}


def test_what_the_first_graph_keeps_in_float_is_told() -> None:
    applied = {"label": "w8a16, 1 operator in float", "wide": 0, "float": 1}
    kept = replace(tried([21])[0], applied=applied)
    assert told([kept]) == {"applied": applied, "notice": "w8a16, 1 operator in float"}
    vain = told([kept, replace(kept, step="wide", distance=Distance(1, "bad"))])
    assert vain["notice"].startswith("w8a16, 1 operator in float")


def test_the_order_is_fixed_and_ends_with_the_first_that_passes() -> None:
    assert ALL == ("percentile", "smooth", "wide", "wider", "float")
    found = tried([5, 6, 7, 20.5, 30])
    assert [one.step for one in found] == [ASKED, "percentile", "smooth", "wide"]
    assert told(found) == {
        "attempts": [
            {"step": ASKED, "snr": 5},
            {"step": "percentile", "snr": 6},
            {"step": "smooth", "snr": 7},
            {"step": "wide", "snr": 20.5},
        ],
        "applied": {"step": "wide"},
        "wide": ["a", "b"],
        "notice": "w8a16: quantized again with smoothed channels, 5 -> 20.5 dB above the error",
    }


def test_a_step_that_makes_it_worse_is_left_out_of_the_next_ones() -> None:
    found = tried([5, 4, 4, 6, 7, 8])
    assert [one.settings.calibration for one in found] == [
        "minmax", "percentile", "minmax", "minmax", "minmax", "minmax"
    ]  # fmt: skip
    assert [one.settings.smooth for one in found] == [False, False, True, False, False, False]
    last = found[-1].settings
    assert last.floats == {"a", "b", "sum"}
    assert last.wide == {"c", "d"}


def test_no_step_goes_on_from_what_percentile_has_cut_off() -> None:
    found = tried([5, 9, 6.5, 8, 8.5, 8])
    assert [one.settings.calibration for one in found] == ["minmax", "percentile", *4 * ["minmax"]]
    assert [one.settings.smooth for one in found] == [False, False, True, True, True, True]
    assert attempts.best(found).step == "percentile"


def test_a_step_that_hardly_helps_is_left_out_of_the_next_ones() -> None:
    """Between ruined graphs a tenth of a decibel is luck."""
    found = tried([-1.3, -1.2, -0.4, 11.4, 21])
    assert [one.settings.calibration for one in found[2:]] == ["minmax", "minmax", "minmax"]
    assert not found[3].settings.smooth
    assert attempts.best(tried([19, 19.9, 19.5, 19.2, 19.9, 19.9])).step == ASKED
    assert attempts.best(tried([19.5, 20.1])).step == "percentile"


def test_half_of_the_operators_at_most_get_more_bits() -> None:
    found = tried([1, 2, 3, 4, 5, 6])
    assert found[3].settings.wide == {"a", "b"}
    assert found[4].settings.wide == {"a", "b", "c", "d"}
    single = search(
        attempt(ASKED, 1),
        ["wide", "float"],
        lambda *_: pytest.fail("tried"),
        lambda _: Ranking(["a"], NONE, lambda: 0),
    )
    assert len(single) == 1


def test_without_a_passing_graph_the_best_is_kept_and_the_notice_says_so() -> None:
    found = tried([5, 9, 7, 6, 6, 6])
    assert attempts.best(found).step == "percentile"
    assert told(found)["notice"] == (
        "w8a16: quantized again with percentile calibration, 5 -> 9 dB above the error "
        "(still misses parity)"
    )
    vain = tried([9, 5, 5, 5, 5, 5])
    assert told(vain)["notice"] == "quantized in 6 ways, none better: 9 dB above the error"
    assert told(vain)["applied"]["step"] == ASKED


def test_what_does_not_change_the_settings_is_not_tried() -> None:
    found = search(
        attempt(ASKED, 1, replace(FIRST, calibration="percentile")),
        ["percentile"],
        lambda *_: pytest.fail("tried"),
        rank,
    )
    assert len(found) == 1


def test_the_limit_leaves_something_to_spare(tmp_path: Path) -> None:
    onnx.save(
        graphs.model([helper.make_node("Identity", ["x"], ["y"])], {}), tmp_path / "model.onnx"
    )
    random = np.random.default_rng(0)
    sets = [{"x": random.standard_normal((2, 8)).astype(np.float32)} for _ in range(4)]
    judge = losses.Judge(tmp_path, sets, {"snr": 20.0, "max_abs": 0.5})
    assert judge.distance(tmp_path) == Distance(MOST_DB)

    def noisy(size: float) -> Distance:
        alternating = size * np.resize([1, -1], (2, 8))
        return judge.between([{"y": one["x"] + alternating} for one in sets])

    assert noisy(0.05).fault == ""
    near = noisy(0.09)
    assert 20 < near.snr < 21
    assert near.fault.startswith(
        f"y: signal-to-noise ratio {near.snr:g} dB against the float graph"
    )
    assert judge.between([{"y": 2 * one["x"]} for one in sets]).snr < 1
    assert judge.between([{"y": one["x"] + 3} for one in sets]).fault
    broken = judge.between([{"y": np.full_like(one["x"], np.nan)} for one in sets])
    assert broken == Distance(-MOST_DB, "y: it holds NaN or infinity")


def test_operators_are_ordered_by_three_digits_of_their_loss_and_by_name() -> None:
    assert attempts.ordered({"c": 0.20001, "a": 0.3, "b": 0.2}) == ["a", "b", "c"]


def test_more_bits_are_for_no_more_weights_and_products_than_the_label_allows() -> None:
    shares = {"a": 0.4, "b": 0.2, "c": 0.1, "d": 0.1, "e": 0.1, "f": 0.1}
    own = Ranking(list(shares), Sizes(shares, shares), lambda: 3, frozenset({"sum"}))
    first = attempt(ASKED, 1)
    assert attempts.changed("wider", first, lambda _: own).wide == {"a", "c"}
    assert attempts.changed("float", first, lambda _: own).floats == {"sum"}
    narrow = replace(own, names=["c", "a", "b", "d", "e", "f", "g", "h"])
    found = attempts.changed("float", first, lambda _: narrow)
    assert found.floats == {"c", "sum"}
    assert found.wide == {"a"}
    results = attempt(ASKED, 1, Settings("w8a8"))
    assert attempts.changed("wider", results, lambda _: own).wide == {"a", "b", "c"}


def test_what_stays_in_float_with_all_before_it() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["turned"], name="neg"),
        helper.make_node("Mul", ["turned", "x"], ["square"], name="square"),
        helper.make_node("Abs", ["x"], ["apart"], name="apart"),
        helper.make_node("Log", ["square"], ["loud"], name="log"),
        helper.make_node("Add", ["loud", "apart"], ["y"], name="sum"),
    ]
    assert attempts.before(graphs.model(nodes, {}), {"log"}) == {"square", "neg"}


def test_float_takes_the_lossy_first_and_no_more_weights_than_the_label_allows() -> None:
    sizes = Sizes({"a": 0.3, "b": 0.3, "lossy": 0.3}, {})
    ranking = Ranking(["a", "b", "c", "d"], sizes, lambda: 2, frozenset({"lossy", "z"}))
    settings = attempts.changed("float", attempt(ASKED, 1), lambda _: ranking)
    assert settings.floats == {"lossy", "z"}
    assert settings.wide == set()
