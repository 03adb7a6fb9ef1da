"""The ranges that calibration finds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnxruntime.quantization import quant_utils

from tests.engines import graphs
from workers.engine import StageError
from workers.optimum_engine import calibrate, histograms


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


def test_what_hides_counts_as_the_depth_of_a_mask_and_other_numbers_as_they_are() -> None:
    lowest = float(np.finfo(np.float32).min)

    def found(*values: float, hides: bool = True) -> tuple[float, float]:
        return calibrate.bounds(np.array(values), 100, hides=hides)

    assert found(lowest, 1.0, 3.0) == (-100, 3)
    assert found(-math.inf, -200.0) == (-200, -200)
    assert found(-10_000.0, 2.0) == (-100, 2)
    assert found(math.inf) == (0, 100)
    assert found(-10_000.0, 2.0, hides=False) == (-10_000, 2)
    assert found(lowest, 1.0, hides=False) == (lowest, 1)
    assert math.isnan(found(1.0, math.nan)[0])


def ranges(
    model: Any,
    sets: list[dict[str, Any]],
    folder: Path,
    method: str = "minmax",
    margin: float = 0.0,
    levels: int = 255,
) -> dict[str, Any]:
    (folder / "model").mkdir(parents=True)
    onnx.save(model, str(folder / "model" / "model.onnx"))
    limits = calibrate.Limits(100, levels, method, margin)
    return calibrate.ranges(folder / "model", sets, folder / "temp", limits)


def typed(nodes: list[Any], weights: dict[str, Any]) -> Any:
    """A graph of x with the types of its inner tensors."""
    model = graphs.model(nodes, weights, out=[2, 8])
    return onnx.shape_inference.infer_shapes(model)


def test_a_mask_hides_although_no_sample_shows_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Greater", ["x", "limit"], ["hides"]),
        helper.make_node("Where", ["hides", "mask", "zero"], ["low"]),
        helper.make_node("Add", ["x", "low"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    weights = {"limit": np.float32(9), "mask": np.float32(-100), "zero": np.float32(0)}
    found = ranges(typed(nodes, weights), [{"x": np.full((2, 8), 1.5, np.float32)}], tmp_path)
    assert (found["low"], found["scores"]) == ((-100, 0), (-100, 1.5))


def test_a_margin_moves_both_ends_outwards(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["turned"]), helper.make_node("Abs", ["x"], ["y"])]
    rows = np.linspace(-2, 4, 16, dtype=np.float32).reshape(2, 8)
    found = ranges(typed(nodes, {}), [{"x": rows}], tmp_path, margin=0.5)
    assert found == {"x": (-3, 6), "turned": (-6, 3), "y": (0, 6)}
    cut = ranges(typed(nodes, {}), [{"x": rows}], tmp_path / "cut", "percentile", 0.5)
    assert 4 < cut["x"][1] <= 6


def test_a_margin_ends_where_results_do(tmp_path: Path) -> None:
    """The quantizer leaves out a Clip: what cuts off in its place is the range of its result."""
    nodes = [
        helper.make_node("Clip", ["x", "zero", "six"], ["clipped"]),
        helper.make_node("Clip", ["x", "", "shown"], ["open"]),
        helper.make_node("Sigmoid", ["x"], ["share"]),
        helper.make_node("Sum", ["clipped", "open", "share"], ["y"]),
        helper.make_node("ReduceMax", ["x"], ["shown"], keepdims=0),
    ]
    weights = {"zero": np.float32(0), "six": np.float32(6)}
    nodes.insert(0, nodes.pop())
    rows = np.linspace(-4, 5, 16, dtype=np.float32).reshape(2, 8)
    found = ranges(typed(nodes, weights), [{"x": rows}], tmp_path, margin=0.5)
    assert (found["clipped"], found["x"]) == ((0, 6), (-6, 7.5))
    assert found["open"] == (-6, 5)
    assert found["share"][1] == 1


def test_a_clip_ends_what_follows_it_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Clip", ["x", "", "six"], ["low"]),
        helper.make_node("Relu", ["low"], ["after"]),
        helper.make_node("Clip", ["after", "", "ten"], ["last"]),
        helper.make_node("Relu", ["x"], ["free"]),
        helper.make_node("Sum", ["last", "free"], ["y"]),
    ]
    rows = np.linspace(-4.5, 6.5, 16, dtype=np.float32).reshape(2, 8)
    weights = {"six": np.float32(6), "ten": np.float32(10)}
    found = ranges(typed(nodes, weights), [{"x": rows}], tmp_path, margin=0.5)
    assert (found["after"], found["last"], found["free"]) == ((0, 6), (0, 6), (0, 9.75))


@pytest.mark.parametrize("levels", [255, 65535])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 0), (-3, 7), (-100, 0), (5, 5), (0, 200)])
def test_whole_numbers_are_exact(low: int, high: int, levels: int, tmp_path: Path) -> None:
    """A little less than 1 is 0 where the HTP casts it, and the mask hides nothing."""
    rows = np.linspace(low, high, 16).round().astype(np.float32).reshape(2, 8)
    model = typed([helper.make_node("Neg", ["x"], ["y"])], {})
    found = ranges(model, [{"x": rows}], tmp_path, margin=0.5 * (levels > 255), levels=levels)
    for name, values in ("x", rows), ("y", -rows):
        zero, step = quant_utils.compute_scale_zp(
            *np.array(found[name], np.float32), np.array(0), np.array(levels)
        )
        assert ((values / step + zero).round() - zero) * step == pytest.approx(values, abs=0)


def test_nan_is_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    nodes = [helper.make_node("Log", ["x"], ["inner"]), helper.make_node("Relu", ["inner"], ["y"])]
    sets = [{"x": np.full((2, 8), -1, np.float32)}]
    with pytest.raises(StageError, match="NaN at 'inner'") as raised:
        ranges(typed(nodes, {}), sets, tmp_path)
    assert raised.value.failure == "QUANTIZE"


def test_endless_values_that_hide_nothing_have_no_range(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Div", ["x", "zero"], ["endless"]),
        helper.make_node("Min", ["endless", "one"], ["y"]),
    ]
    model = typed(nodes, {"zero": np.float32(0), "one": np.float32(1)})
    sets = [{"x": np.full((2, 8), value, np.float32)} for value in (0.5, 0.75)]
    assert "endless" not in ranges(model, sets, tmp_path)


OUTLIERS = np.append(np.random.default_rng(3).standard_normal(65534), [-1e6, 1e6])


@pytest.mark.parametrize(
    ("method", "least", "most"), [("minmax", 1e6, 1e6), ("percentile", 3, 6), ("mse", 6e4, 1e6)]
)
def test_methods_differ_in_what_they_cut_off(
    method: str, least: float, most: float, tmp_path: Path
) -> None:
    rows = OUTLIERS.astype(np.float32).reshape(-1, 8)
    found = ranges(graphs.model([helper.make_node("Relu", ["x"], ["y"])], {}), [{"x": rows}],
                   tmp_path, method)["x"]  # fmt: skip
    assert least <= found[1] <= most * 1.001
    assert least <= -found[0] <= most * 1.001


def test_an_average_is_that_of_samples(tmp_path: Path) -> None:
    model = typed([helper.make_node("Neg", ["x"], ["y"])], {})
    sets = [{"x": np.full((2, 8), value, np.float32)} for value in (1.5, 2, 7)]
    assert ranges(model, sets, tmp_path, "average") == {"x": (3.5, 3.5), "y": (-3.5, -3.5)}


def test_what_is_rare_and_far_is_cut_off_where_steps_are_few() -> None:
    values = np.append(np.random.default_rng(3).standard_normal(20_000), [12.0])
    found = histograms.counts(values.astype(np.float32))
    low, high = histograms.mse(found, float(values.min()), 12.0, 15)
    assert 2 < high < 6
    assert low > values.min() * 1.001
    assert histograms.mse(found, float(values.min()), 12.0, 65535) == (values.min(), 12.0)
