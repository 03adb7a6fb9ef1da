"""Weights that a graph transposes are transposed in its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.engines import graphs
from tests.engines.graphs import outputs
from workers.optimum_engine import tracing
from workers.sources import model_file, onnx_graph


@pytest.mark.parametrize("shared", [False, True])
def test_transposed_weights_are_transposed_in_files(tmp_path: Path, shared: bool) -> None:
    weight = np.random.default_rng(4).standard_normal((256, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["a" if shared else "y"]),
    ]
    if shared:
        nodes += [
            helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
            helper.make_node("Add", ["a", "s"], ["y"]),
        ]
    model = graphs.model(nodes, {"w": weight})
    expected = outputs(model)
    assert tracing.fold_transposes(model, tmp_path) == 1
    assert "Transpose" not in onnx_graph.operators(model)
    model_file.save(model, tmp_path / "out", tmp_path)
    made = model_file.load(tmp_path / "out" / "model.onnx")
    names = {tensor.name for tensor in made.graph.initializer}
    assert names == ({"w", "turned"} if shared else {"turned"})
    assert (outputs(made) == expected).all()
    assert tracing.fold_transposes(model, tmp_path) == 0
