"""Which constants act as masks, and what becomes of those and of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.engines import graphs
from workers.optimum_engine import masks

LOWEST = np.finfo(np.float32).min
NODE = helper.make_node


def shallow(nodes: list[Any], weights: dict[str, Any], folder: Path) -> tuple[int, dict[str, Any]]:
    """How many constants changed, and all constants afterwards."""
    model = graphs.model(nodes, weights)
    count = masks.make_shallow(model, 100.0, folder)
    return count, {t.name: numpy_helper.to_array(t).tolist() for t in model.graph.initializer}


@pytest.mark.parametrize("low", [LOWEST, -np.inf, -1e9, -1e4])
def test_what_is_added_to_scores_is_a_mask(low: float, tmp_path: Path) -> None:
    nodes = [NODE("Add", ["x", "mask"], ["a"]), NODE("Softmax", ["a"], ["y"])]
    mask = np.array([low, 0] * 4, np.float32)
    assert shallow(nodes, {"mask": mask}, tmp_path) == (1, {"mask": [-100, 0] * 4})


def test_what_is_selected_or_multiplied_before_a_softmax_is_a_mask(tmp_path: Path) -> None:
    nodes = [
        NODE("Where", ["hidden", "low", "x"], ["a"]),
        NODE("Mul", ["inverted", "low"], ["b"]),
        NODE("Unsqueeze", ["b", "axis"], ["c"]),
        NODE("Add", ["a", "c"], ["d"]),
        NODE("Softmax", ["d"], ["y"]),
    ]
    weights = {
        "hidden": np.array([True, False] * 4), "low": np.float32(LOWEST),
        "inverted": np.ones(8, np.float32), "axis": np.array([0]),
    }  # fmt: skip
    count, found = shallow(nodes, weights, tmp_path)
    assert (count, found["low"], found["inverted"]) == (1, -100, [1] * 8)


def test_bounds_and_other_large_numbers_stay(tmp_path: Path) -> None:
    nodes = [
        NODE("Clip", ["x", "zero", "highest"], ["a"]),
        NODE("Add", ["a", "large"], ["b"]),
        NODE("Div", ["b", "large"], ["c"]),
        NODE("Softmax", ["x"], ["d"]),
        NODE("Mul", ["c", "d"], ["y"]),
    ]
    weights = {
        "zero": np.float32(0), "highest": np.float32(-LOWEST), "large": np.float32(1e35),
    }  # fmt: skip
    count, found = shallow(nodes, weights, tmp_path)
    assert count == 0
    assert found == {name: value.item() for name, value in weights.items()}


def test_a_number_that_is_a_mask_and_a_bound_becomes_two(tmp_path: Path) -> None:
    nodes = [
        NODE("Clip", ["x", "lowest"], ["a"]),
        NODE("Add", ["a", "lowest"], ["b"]),
        NODE("Softmax", ["b"], ["y"]),
    ]
    count, found = shallow(nodes, {"lowest": np.float32(LOWEST)}, tmp_path)
    assert (count, found) == (1, {"lowest": LOWEST, "lowest/shallow": -100})
    assert [list(node.input) for node in nodes[:2]] == [["x", "lowest"], ["a", "lowest"]]


def test_what_a_mask_is_compared_with_changes_with_it(tmp_path: Path) -> None:
    nodes = [
        NODE("Mul", ["inverted", "low"], ["mask"]),
        NODE("Equal", ["mask", "low"], ["is_low"]),
        NODE("Where", ["is_low", "zero", "mask"], ["kept"]),
        NODE("Add", ["x", "kept"], ["scores"]),
        NODE("Softmax", ["scores"], ["y"]),
    ]
    weights = {
        "inverted": np.ones(8, np.float32), "low": np.float32(LOWEST), "zero": np.float32(0),
    }  # fmt: skip
    assert shallow(nodes, weights, tmp_path)[1]["low"] == -100


def test_a_bound_that_bounds_nothing_goes(tmp_path: Path) -> None:
    nodes = [
        NODE("Add", ["x", "mask"], ["a"]),
        NODE("Max", ["a", "lowest"], ["b"]),
        NODE("Max", ["b", "zero"], ["c"]),
        NODE("Softmax", ["c"], ["y"]),
    ]
    weights = {
        "mask": np.full(8, LOWEST, np.float32), "lowest": np.float32(LOWEST),
        "zero": np.float32(0),
    }  # fmt: skip
    model = graphs.model(nodes, weights)
    assert masks.make_shallow(model, 50.0, tmp_path) == 1
    assert [(node.op_type, list(node.input)) for node in model.graph.node] == [
        ("Add", ["x", "mask"]), ("Max", ["a", "zero"]), ("Softmax", ["c"]),
    ]  # fmt: skip


def test_constants_inside_nodes_are_masks_too(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.array([LOWEST], np.float32))
    nodes = [
        NODE("ConstantOfShape", ["size"], ["mask"], value=tensor),
        NODE("Constant", [], ["more"], value=tensor),
        NODE("Sum", ["x", "mask", "more"], ["a"]),
        NODE("LogSoftmax", ["a"], ["y"]),
    ]
    model = graphs.model(nodes, {"size": np.array([8])})
    assert masks.make_shallow(model, 50.0, tmp_path) == 2
    values = [numpy_helper.to_array(node.attribute[0].t) for node in model.graph.node[:2]]
    assert values == [-50, -50]
