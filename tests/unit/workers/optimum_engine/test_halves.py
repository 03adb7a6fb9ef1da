"""What stays in float32 because fp16 cannot hold it, as a device with fp16 computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.engines import graphs
from workers.optimum_engine import halves
from workers.sources import model_file, onnx_graph

NODE = helper.make_node
LARGE = np.linspace(-1000, 1000, 16, dtype=np.float32).reshape(2, 8)


def converted(
    nodes: list[Any], weights: dict[str, Any], rows: Any, folder: Path, *, seen: bool = True
) -> tuple[Any, dict[str, Any]]:
    """What real fp16 arithmetic gives for these rows, and facts; `seen`: the rows are a sample."""
    model = graphs.model(nodes, weights)
    model_file.save(model, folder / "model")
    (folder / "temp").mkdir()
    samples = [{"x": rows}] if seen else []
    made, facts = halves.convert(folder / "model", folder / "temp", (), samples)
    onnx_graph.sort(made.graph)
    onnx.checker.check_model(made)
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(made).run(None, {"x": rows})[0], facts


def norm(epsilon: float) -> tuple[list[Any], dict[str, Any]]:
    """x / sqrt(mean(x * x) + epsilon)"""
    nodes = [
        NODE("Mul", ["x", "x"], ["squares"], name="square"),
        NODE("ReduceMean", ["squares"], ["mean"], name="mean", axes=[1]),
        NODE("Add", ["mean", "epsilon"], ["sum"], name="add"),
        NODE("Sqrt", ["sum"], ["root"], name="root"),
        NODE("Div", ["x", "root"], ["y"], name="divide"),
    ]
    return nodes, {"epsilon": np.float32(epsilon)}


@pytest.mark.parametrize("rows", [LARGE, LARGE * 1e-8])
def test_squares_beyond_the_range_stay_in_float32(tmp_path: Path, rows: Any) -> None:
    wanted = rows / np.sqrt((rows * rows).mean(axis=1, keepdims=True) + 1e-12)
    wrong, facts = converted(*norm(1e-4), rows, tmp_path / "unseen", seen=False)
    assert "floats" not in facts
    assert not np.allclose(wrong, wanted, atol=0.01)
    found, facts = converted(*norm(1e-12), rows, tmp_path / "seen")
    assert {"square", "mean", "add", "root"} <= set(facts["floats"])
    assert np.allclose(found, wanted, atol=0.01)


def test_an_epsilon_below_the_smallest_number_is_kept(tmp_path: Path) -> None:
    found, facts = converted(*norm(1e-12), np.zeros((2, 8), np.float32), tmp_path)
    assert facts["floats"] == ["add", "root"]
    assert not found.any()


def test_ordinary_values_keep_nothing_and_lost_ones_beside_large_ones_do_not_count(
    tmp_path: Path,
) -> None:
    nodes = [NODE("Softmax", ["x"], ["p"], name="softmax"), NODE("Relu", ["p"], ["y"], name="r")]
    rows = np.array([[0, -30, -60, 1, 2, 3, 4, 5]], np.float32)
    found, facts = converted(nodes, {}, rows, tmp_path)
    assert "floats" not in facts
    assert found[0, 7] == pytest.approx(0.63, abs=0.01)


def test_masks_and_bounds_do_not_count_as_values(tmp_path: Path) -> None:
    lowest, highest = np.finfo(np.float32).min, np.finfo(np.float32).max
    nodes = [
        NODE("Clip", ["x", "zero", "highest"], ["c"], name="clip"),
        NODE("Add", ["c", "mask"], ["a"], name="hide"),
        NODE("Softmax", ["a"], ["p"], name="softmax"),
        NODE("Mul", ["p", "c"], ["y"], name="product"),
    ]
    mask = np.array([lowest] * 4 + [0] * 4, np.float32)
    weights = {"zero": np.float32(0), "highest": np.float32(highest), "mask": mask}
    rows = np.full((1, 8), 40_000, np.float32)
    found, facts = converted(nodes, weights, rows, tmp_path)
    assert "floats" not in facts
    assert found.tolist() == [[0] * 4 + [10_000] * 4]


def test_a_weight_beyond_the_range_stays_as_it_is(tmp_path: Path) -> None:
    weights = {"w": np.full((8, 8), 1e5, np.float32), "small": np.full(8, 1e-6, np.float32)}
    nodes = [
        NODE("Mul", ["x", "small"], ["a"], name="shrink"),
        NODE("MatMul", ["a", "w"], ["y"], name="product"),
    ]
    rows = np.ones((1, 8), np.float32)
    found, facts = converted(nodes, weights, rows, tmp_path)
    assert facts["floats"] == ["product"]
    assert found == pytest.approx(0.8, abs=0.02)
