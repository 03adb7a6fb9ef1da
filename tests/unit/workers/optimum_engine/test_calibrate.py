"""The ranges that calibration finds, and masks made shallow for it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.engines import graphs
from workers.engine import StageError
from workers.optimum_engine import calibrate


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_rounded_ranges_hold_the_value_and_are_tight(value: float) -> None:
    low, high = calibrate.rounded(value, value)
    slack = abs(value) * 1e-6
    assert low - slack <= value <= high + slack
    assert high - low <= abs(value) * 2**-10


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_noise_in_the_last_bits_mostly_vanishes(value: float) -> None:
    grid = calibrate.outwards(value, 1)
    assert calibrate.outwards(grid * (1 + 1e-8), 1) == grid
    assert calibrate.outwards(grid * (1 - 1e-8), 1) == grid


def test_endless_values_count_as_the_depth_of_a_mask() -> None:
    lowest = float(np.finfo(np.float32).min)
    assert calibrate.finite_bounds(np.array([lowest, 1.0, 3.0]), calibrate.Limits(100)) == (-100, 3)
    assert calibrate.finite_bounds(np.array([-math.inf, -200.0]), calibrate.Limits(100)) == (
        -200,
        -200,
    )
    assert calibrate.finite_bounds(np.array([math.inf]), calibrate.Limits(50)) == (0, 50)
    assert math.isnan(calibrate.finite_bounds(np.array([1.0, math.nan]), calibrate.Limits(100))[0])


def test_a_percentile_leaves_the_outermost_values_out() -> None:
    array = np.arange(100_000, dtype=np.float32)
    array[7], array[8] = -1e6, 1e6
    assert calibrate.finite_bounds(array, calibrate.Limits(100)) == (-1e6, 1e6)
    low, high = calibrate.finite_bounds(array, calibrate.Limits(100, 1e-4))
    assert (0 <= low <= 10, 99_980 <= high <= 99_999) == (True, True)
    assert {low, high} <= set(array.tolist())
    few = np.array([1.0, 2.0, 3.0])
    assert calibrate.finite_bounds(few, calibrate.Limits(100, 1e-4)) == (1.0, 3.0)
    masked = np.append(array, -np.inf)
    assert calibrate.finite_bounds(masked, calibrate.Limits(1e7, 1e-4))[0] == -1e7


def test_nan_is_an_error_that_names_the_tensor() -> None:
    with pytest.raises(StageError, match="NaN at 'inner'") as raised:
        calibrate.widen({}, {"inner": np.array([math.nan])}, calibrate.Limits(100))
    assert raised.value.failure == "QUANTIZE"


def test_masks_become_shallow_and_numbers_stay(tmp_path: Path) -> None:
    lowest = np.finfo(np.float32).min
    weights = {
        "mask": np.array([[lowest, 0, -np.inf]], np.float32),
        "w": np.array([[-1e9, 5]], np.float32),
        "ids": np.array([2**40]),
    }
    model = graphs.model([helper.make_node("Identity", ["x"], ["y"])], weights)
    assert calibrate.make_shallow(model, 100.0, tmp_path) == 1
    mask, weight, _ = (onnx.numpy_helper.to_array(item) for item in model.graph.initializer)
    assert mask.tolist() == [[-100, 0, -100]]
    assert (weight == weights["w"]).all()
