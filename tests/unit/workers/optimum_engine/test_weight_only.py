"""Weights of 8 bits in plain ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.engines import graphs
from tests.engines.graphs import ROWS, outputs
from workers.engine import StageError
from workers.optimum_engine import weight_only
from workers.sources import model_file, onnx_graph


@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "GemmT"])
def test_int8_weights_are_plain_onnx_and_close(tmp_path: Path, kind: str) -> None:
    weight = np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)
    weight[:, 3] *= 1000  # one channel must not cost the others their steps
    if kind == "MatMul":
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    else:
        node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=int(kind == "GemmT"))
    model = graphs.model([node], {"w": weight.T.copy() if kind == "GemmT" else weight})
    model_file.save(model, tmp_path)
    made, told = weight_only.convert(tmp_path, ())
    onnx.checker.check_model(made, full_check=True)
    assert told == {"weights": 1, "types": {"int8": 1}}
    assert not onnx_graph.contrib(made)
    expected, found = outputs(model), outputs(made)
    half_steps = np.abs(weight).max(axis=0) / 127 / 2
    bound = np.abs(ROWS).sum(axis=1, keepdims=True) * half_steps
    assert (np.abs(expected - found) <= bound * 1.01 + 1e-5).all()


def test_weights_that_others_read_are_left_alone(tmp_path: Path) -> None:
    weight = np.ones((8, 256), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
        helper.make_node("Add", ["a", "s"], ["y"]),
    ]
    model_file.save(graphs.model(nodes, {"w": weight}), tmp_path)
    with pytest.raises(StageError, match="no weight"):
        weight_only.convert(tmp_path, ())


def test_blocked_operators_keep_their_weights(tmp_path: Path) -> None:
    model_file.save(graphs.matmul(), tmp_path)
    with pytest.raises(StageError, match="no weight"):
        weight_only.convert(tmp_path, ("MatMul",))


def test_int8_weights_need_opset_13(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = graphs.model([node], {"w": np.ones((8, 256), np.float32)}, opset=12)
    model_file.save(model, tmp_path)
    with pytest.raises(StageError, match="opset 13"):
        weight_only.convert(tmp_path, ())
