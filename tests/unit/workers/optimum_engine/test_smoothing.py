"""Moving channels into weights: the graph computes the same, whoever else reads what is scaled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.engines import graphs
from workers.optimum_engine import smoothing
from workers.sources import model_file, runtime

RANDOM = np.random.default_rng(11)
SETS = [{"x": RANDOM.standard_normal((2, 8)).astype(np.float32)} for _ in range(4)]
GAIN = np.array([1, 1, 200, 1, 1, 1, 1, 1], np.float32)
BIAS = RANDOM.standard_normal(8).astype(np.float32)
WEIGHT = (RANDOM.standard_normal((8, 4)) / GAIN[:, None]).astype(np.float32)
OTHER = RANDOM.standard_normal((8, 4)).astype(np.float32)
NORM = helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["n"], name="norm")
PRODUCT = helper.make_node("MatMul", ["n", "w"], ["y"], name="product")
VECTORS = {"gain": GAIN, "bias": BIAS}
LEAST = 10
"""How far apart the channels of the norm are at least, in the same graph before."""


def smoothed(
    nodes: Sequence[Any], weights: dict[str, Any], folder: Path, width: int = 4
) -> tuple[Any, list[smoothing.Place]]:
    """The graph afterwards, which computes the same, and its places before."""
    model = graphs.model(list(nodes), weights, out=["batch", width])
    onnx.checker.check_model(model)
    model_file.save(model, folder / "float")
    runtime.add_types(folder / "float", folder / "types")
    found = smoothing.places(model_file.load_graph(folder / "float"))
    if not found:
        return model, found
    made = model_file.load(
        smoothing.smooth(folder / "float", SETS, folder / "smooth") / model_file.MODEL
    )
    onnx.checker.check_model(made)
    for sample in SETS:
        before, after = (graphs.outputs(one, sample["x"]) for one in (model, made))
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)
    return made, found


def reader(model: Any, name: str) -> tuple[Any, Any]:
    """The node of a name, and the values of its weight."""
    [node] = [node for node in model.graph.node if node.name == name]
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return node, values[node.input[1]]


def spread(model: Any, name: str) -> float:
    """How far apart the channels of a tensor are."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output[0].name = name
    value = np.concatenate([graphs.outputs(shown, one["x"]) for one in SETS])
    peaks = np.abs(value.reshape(-1, value.shape[-1])).max(axis=0)
    return float(peaks.max() / np.median(peaks))


def names(model: Any) -> list[str]:
    return [node.name for node in model.graph.node]


def test_the_channel_of_a_norm_that_stands_out_moves_into_the_weight(tmp_path: Path) -> None:
    made, [place] = smoothed([NORM, PRODUCT], {**VECTORS, "w": WEIGHT}, tmp_path)
    assert place.alone
    assert names(made) == ["norm", "product"]
    assert len(made.graph.initializer) == 3
    _, weight = reader(made, "product")
    scale = weight / WEIGHT
    np.testing.assert_array_equal(np.exp2(np.rint(np.log2(scale))), scale)  # nothing is rounded
    before = graphs.model([NORM, PRODUCT], {**VECTORS, "w": WEIGHT})
    assert spread(made, "n") * LEAST < spread(before, "n")


def test_a_gemm_with_a_turned_weight_behind_a_reshape_and_a_gain_with_a_bias(
    tmp_path: Path,
) -> None:
    nodes = [
        helper.make_node("Mul", ["gain", "x"], ["m"], name="gain"),
        helper.make_node("Add", ["m", "bias"], ["n"], name="bias"),
        helper.make_node("Reshape", ["n", "shape"], ["r"], name="rows"),
        helper.make_node("Gemm", ["r", "w"], ["y"], name="product", transB=1),
    ]
    weights = {**VECTORS, "w": np.ascontiguousarray(WEIGHT.T), "shape": np.array([-1, 8])}
    made, [place] = smoothed(nodes, weights, tmp_path)
    assert (place.tensor, place.alone) == ("n", True)
    assert spread(made, "r") * LEAST < spread(graphs.model(nodes, weights), "r")


def test_what_else_reads_a_norm_keeps_it_and_matrices_get_a_copy(tmp_path: Path) -> None:
    nodes = [
        NORM,
        helper.make_node("MatMul", ["n", "w"], ["p"], name="product"),
        helper.make_node("MatMul", ["p", "v"], ["q"], name="back"),
        helper.make_node("Add", ["q", "n"], ["y"], name="residual"),
    ]
    weights = {**VECTORS, "w": WEIGHT, "v": np.ascontiguousarray(OTHER.T)}
    made, [place] = smoothed(nodes, weights, tmp_path, width=8)
    assert not place.alone
    assert sorted(names(made)) == ["back", "norm", "norm/smooth", "product", "residual"]
    assert reader(made, "product")[0].input[0] == "n/smooth"
    assert reader(made, "back")[0].input[0] == "p"
    original, gain = reader(made, "norm")
    assert list(original.output) == ["n"]
    np.testing.assert_array_equal(gain, GAIN)
    before = graphs.model(nodes, weights)
    assert spread(made, "n") == pytest.approx(spread(before, "n"))
    assert spread(made, "n/smooth") * LEAST < spread(before, "n")


def test_shared_vectors_and_a_weight_that_two_norms_feed_are_scaled_for_each(
    tmp_path: Path,
) -> None:
    nodes = [
        NORM,
        helper.make_node("MatMul", ["n", "w"], ["p"], name="first"),
        helper.make_node("Mul", ["x", "gain"], ["g"], name="gain"),
        helper.make_node("Mul", ["g", "gain"], ["m"], name="again"),
        helper.make_node("MatMul", ["m", "w"], ["q"], name="second"),
        helper.make_node("MatMul", ["x", "w"], ["o"], name="third"),
        helper.make_node("Sum", ["p", "q", "o"], ["y"], name="sum"),
    ]
    made, found = smoothed(nodes, {**VECTORS, "w": WEIGHT}, tmp_path)
    assert [place.tensor for place in found] == ["n", "m"]
    first, second, third = (reader(made, name)[1] for name in ("first", "second", "third"))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(third, WEIGHT)


def test_a_place_has_one_scale_for_all_its_matrices(tmp_path: Path) -> None:
    nodes = [
        NORM,
        helper.make_node("MatMul", ["n", "w"], ["p"], name="first"),
        helper.make_node("MatMul", ["n", "v"], ["q"], name="second"),
        helper.make_node("Add", ["p", "q"], ["y"], name="sum"),
    ]
    made, [place] = smoothed(nodes, {**VECTORS, "w": WEIGHT, "v": OTHER}, tmp_path)
    assert place.alone
    np.testing.assert_array_equal(
        reader(made, "first")[1] / WEIGHT, reader(made, "second")[1] / OTHER
    )


def test_a_norm_that_no_matrix_reads_alone_is_left_alone(tmp_path: Path) -> None:
    twice = [NORM, helper.make_node("Transpose", ["w"], ["t"], name="turned"),
             helper.make_node("MatMul", ["n", "t"], ["y"], name="product")]  # fmt: skip
    assert not smoothed(twice, {**VECTORS, "w": np.ascontiguousarray(WEIGHT.T)}, tmp_path / "made")[
        1
    ]
    square = [NORM, helper.make_node("Relu", ["n"], ["r"], name="relu"),
              helper.make_node("MatMul", ["r", "w"], ["y"], name="product")]  # fmt: skip
    assert not smoothed(square, {**VECTORS, "w": WEIGHT}, tmp_path / "relu")[1]
    scalar = [helper.make_node("Mul", ["x", "gain"], ["n"], name="gain"), PRODUCT]
    number = {"gain": np.array([3], np.float32), "w": WEIGHT}
    assert not smoothed(scalar, number, tmp_path / "number")[1]


def test_channels_that_are_never_used_stay_as_they_are(tmp_path: Path) -> None:
    gain, weight = GAIN.copy(), WEIGHT.copy()
    gain[0], weight[1] = 0, 0
    bias = np.where(gain, BIAS, 0).astype(np.float32)
    made, _ = smoothed([NORM, PRODUCT], {"gain": gain, "bias": bias, "w": weight}, tmp_path)
    _, found = reader(made, "product")
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[:2], weight[:2])
