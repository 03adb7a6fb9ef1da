"""What people are told of a precision, and when a graph is another one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from matrix.verification import IN_FLOAT, MORE_BITS
from tests.engines import graphs
from workers.optimum_engine import label
from workers.optimum_engine.label import Sizes

OWN = Sizes({"a": 0.6, "b": 0.3, "c": 0.1}, {"a": 0.1, "b": 0.6, "c": 0.3})


def test_shares_of_weights_and_of_products_differ_where_places_do() -> None:
    weights = {
        "filter": np.zeros((2, 1, 3), np.float32), "shape": np.array([2, 1, 8]),
        "flat": np.array([2, 12]), "w": np.zeros((12, 2), np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["rows"], name="rows"),
        helper.make_node("Conv", ["rows", "filter"], ["c"], name="conv"),
        helper.make_node("Reshape", ["c", "flat"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="product"),
    ]
    model = graphs.model(nodes, weights, out=[2, 2])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    found = label.sizes(onnx.shape_inference.infer_shapes(model))
    assert found.weights == {"conv": 6 / 30, "product": 24 / 30}
    assert found.macs == {"conv": 36 / 84, "product": 48 / 84}


@pytest.mark.parametrize(
    ("precision", "wide", "floats", "text", "weights"),
    [
        ("w8a16", {"b", "c"}, set(), "w8a16, 2 operators in 16-bit weights", 0.4),
        ("w8a16", {"c"}, {"a", "s"}, "w8a16, 1 operator in 16-bit weights, 2 in float", 0.7),
        ("w8a8", {"b"}, {"c"}, "w8a8, 1 operator in 16-bit results, 1 in float", 0.1),
        ("w8a8", set(), {"s"}, "w8a8, 1 operator in float", 0.0),
        ("w8a16", set(), set(), "w8a16", 0.0),
    ],
)
def test_the_label(
    precision: str, wide: set[str], floats: set[str], text: str, weights: float
) -> None:
    found = label.applied(precision, OWN, wide, floats)
    assert (found["label"], found["weights"]) == (text, weights)


def test_beyond_the_cap_a_graph_has_another_precision() -> None:
    assert (MORE_BITS, IN_FLOAT) == (0.5, 0.25)
    fine = label.applied("w8a16", OWN, {"b"}, {"s"})
    assert label.fault(fine) == ""
    heavy = label.applied("w8a16", OWN, {"a"}, ())
    assert label.fault(heavy) == "60% of its weights have more than 8 bits (limit 50%)"
    assert label.fault({**fine, "results": 0.5}) == ""
    wide = label.fault({**fine, "results": 0.567})
    assert wide == "57% of its results have more than 8 bits (limit 50%)"
    slow = label.applied("w8a8", OWN, {"a"}, {"c"})
    assert label.fault(slow) == "30% of its products are in float (limit 25%)"
