"""The places that passes could rewrite, found in small graphs by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from matrix.vocabulary import CANDIDATES
from tests.engines.graphs import model
from workers.measure.insight import DETECTORS, View, candidates, read_facts

FLOAT = np.float32
WEIGHTS = {
    "w": np.ones((8, 8), FLOAT), "b": np.ones(8, FLOAT), "one": FLOAT(1), "half": FLOAT(0.5),
    "root": FLOAT(1.4142), "quick": FLOAT(1.702), "two": FLOAT(2), "eps": FLOAT(1e-5),
    "k": np.ones((8, 8, 1, 1), FLOAT), "shape": np.array([1, 8], np.int64),
    "axes": np.array([0], np.int64),
}  # fmt: skip

N = tuple[str, list[str], str]
ERF: list[N] = [
    ("Div", ["x", "root"], "d"), ("Erf", ["d"], "e"), ("Add", ["e", "one"], "a"),
    ("Mul", ["x", "a"], "m"), ("Mul", ["m", "half"], "y"),
]  # fmt: skip
NORM: list[N] = [
    ("ReduceMean", ["x"], "mean"), ("Sub", ["x", "mean"], "s"), ("Pow", ["s", "two"], "p"),
    ("ReduceMean", ["p"], "v"), ("Add", ["v", "eps"], "ve"), ("Sqrt", ["ve"], "r"),
    ("Div", ["s", "r"], "y"),
]  # fmt: skip
RMS: list[N] = [
    ("Pow", ["x", "two"], "p"), ("ReduceMean", ["p"], "v"), ("Add", ["v", "eps"], "ve"),
    ("Sqrt", ["ve"], "r"), ("Div", ["x", "r"], "y"),
]  # fmt: skip

PLACES: list[tuple[str, list[N]]] = [
    ("gelu", ERF),
    ("bias_gelu", [("Add", ["x0", "b"], "x"), *ERF]),
    ("fast_gelu", [("Tanh", ["x"], "t"), ("Add", ["t", "one"], "y")]),
    (
        "quick_gelu",
        [("Mul", ["x", "quick"], "q"), ("Sigmoid", ["q"], "s"), ("Mul", ["x", "s"], "y")],
    ),
    ("layer_norm", NORM),
    ("simplified_layer_norm", RMS),
    ("skip_layer_norm", [("Add", ["x0", "z"], "x"), *NORM]),
    (
        "skip_layer_norm",
        [("Add", ["x", "z"], "s"), ("LayerNormalization", ["s", "b", "b"], "y")],
    ),
    (
        "attention",
        [
            ("MatMul", ["x", "z"], "s"), ("Div", ["s", "root"], "d"), ("Softmax", ["d"], "p"),
            ("MatMul", ["p", "z"], "y"),
        ],
    ),
    ("bias_softmax", [("Add", ["x", "z"], "a"), ("Softmax", ["a"], "y")]),
    ("matmul_add", [("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "y")]),
    (
        "matmul_add",
        [("Identity", ["b"], "i"), ("MatMul", ["x", "w"], "m"), ("Add", ["m", "i"], "y")],
    ),
    ("matmul_activation", [("MatMul", ["x", "w"], "m"), ("Relu", ["m"], "y")]),
    ("matmul_transpose", [("Transpose", ["x"], "t"), ("MatMul", ["t", "w"], "y")]),
    ("matmul_scale", [("MatMul", ["x", "w"], "m"), ("Mul", ["m", "half"], "y")]),
    ("conv_bn", [("Conv", ["x", "k"], "c"), ("BatchNormalization", ["c", *"bbbb"], "y")]),
    ("conv_add", [("Conv", ["x", "k"], "c"), ("Add", ["c", "b"], "y")]),
    ("conv_mul", [("Conv", ["x", "k"], "c"), ("Mul", ["c", "b"], "y")]),
    ("conv_activation", [("Conv", ["x", "k"], "c"), ("Relu", ["c"], "y")]),
    (
        "conv_add_activation",
        [("Conv", ["x", "k"], "c"), ("Add", ["c", "z"], "a"), ("Relu", ["a"], "y")],
    ),
    ("pad", [("Pad", ["x", "axes"], "p"), ("Conv", ["p", "k"], "y")]),
    ("gemm_activation", [("Gemm", ["x", "w", "b"], "g"), ("Relu", ["g"], "y")]),
    ("gemm_sum", [("Gemm", ["x", "w"], "g"), ("Add", ["g", "b"], "y")]),
    ("gemm_transpose", [("Transpose", ["x"], "t"), ("Gemm", ["t", "w"], "y")]),
    ("slice_elimination", [("Slice", ["x", "axes", "axes"], f"y{n}") for n in range(4)]),
    ("expand_elimination", [("Expand", ["x", "shape"], f"y{n}") for n in range(3)]),
    ("unsqueeze_elimination", [("Unsqueeze", ["b", "axes"], "y")]),
    ("concat_slice_elimination", [("Concat", ["x", "x"], "c"), ("Slice", ["c", "axes"], "y")]),
    ("transpose_optimizer", [("Transpose", ["x"], f"y{n}") for n in range(11)]),
]  # fmt: skip

ELSEWHERE: list[tuple[str, list[N]]] = [
    ("gelu", [("Erf", ["x"], "e"), ("Add", ["e", "two"], "y")]),
    ("quick_gelu", [("Mul", ["x", "two"], "q"), ("Sigmoid", ["q"], "s"), ("Mul", ["x", "s"], "y")]),
    ("layer_norm", RMS),
    ("simplified_layer_norm", NORM),
    ("skip_layer_norm", [("Add", ["x", "b"], "s"), ("LayerNormalization", ["s", "b", "b"], "y")]),
    ("attention", [("MatMul", ["x", "z"], "s"), ("Softmax", ["s"], "y")]),
    ("matmul_add", [("MatMul", ["x", "w"], "m"), ("Add", ["m", "x"], "y")]),
    (
        "matmul_add",
        [("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "y"), ("Relu", ["m"], "y2")],
    ),
    ("conv_add", [("Conv", ["x", "k"], "c"), ("Add", ["c", "z"], "y")]),
    ("slice_elimination", [("Slice", ["x", "axes", "axes"], f"y{n}") for n in range(3)]),
    ("transpose_optimizer", [("Transpose", ["x"], f"y{n}") for n in range(10)]),
]  # fmt: skip


def graph(nodes: list[N], **attributes: Any) -> Any:
    made = [
        helper.make_node(kind, inputs, [out], name=f"{kind}_{out}", **attributes)
        for kind, inputs, out in nodes
    ]
    return model(made, WEIGHTS)


def found(nodes: list[N]) -> dict[str, Any]:
    return {one["name"]: one for one in candidates(View(graph(nodes)))}


@pytest.mark.parametrize(("name", "nodes"), PLACES)
def test_a_place_is_found_with_its_node(name: str, nodes: list[N]) -> None:
    one = found(nodes)[name]
    assert one["count"] >= 1
    assert one["evidence"][0] in {f"{kind}_{out}" for kind, _, out in nodes}


@pytest.mark.parametrize(("name", "nodes"), ELSEWHERE)
def test_what_only_looks_like_it_is_not(name: str, nodes: list[N]) -> None:
    assert name not in found(nodes)


def test_many_dimensions_between_two_reshapes() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b2"], perm=[0, 2, 1, 4, 3]),
        helper.make_node("Reshape", ["b2", "shape"], ["y"]),
    ]
    (one,) = candidates(View(model(nodes, WEIGHTS)))
    assert one == {"name": "highdimRTR_lowdimRTR", "count": 1, "evidence": ["y"]}


def test_every_candidate_has_a_detector_and_a_test() -> None:
    tested = {name for name, _ in PLACES} | {"highdimRTR_lowdimRTR"}
    assert set(DETECTORS) == set(CANDIDATES) == tested


def test_an_operator_of_another_domain_is_none_of_the_standard() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], domain="com.microsoft"),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    assert candidates(View(model(nodes, WEIGHTS))) == []


def test_facts_of_a_file(tmp_path: Path) -> None:
    made = graph([("MatMul", ["x", "w"], "m"), ("Add", ["m", "b"], "y")])
    made.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value_float=1.0))
    onnx.save(made, tmp_path / "model.onnx")
    assert read_facts(tmp_path / "model.onnx") == {
        "opset": 17,
        "nodes": 2,
        "operators": {"Add": 1, "MatMul": 1},
        "dynamic": ["x[0] batch"],
        "candidates": [{"name": "matmul_add", "count": 1, "evidence": ["MatMul_m"]}],
    }
