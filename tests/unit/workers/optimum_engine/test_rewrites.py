"""Which rewrites of a provider a graph needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from matrix.model import REWRITES
from tests.engines import graphs
from workers.engine import Request, StageJob
from workers.optimum_engine import rewrites
from workers.sources import model_file

EYE = np.eye(8, dtype=np.float32)


def gemms(*, shared: bool) -> Any:
    """Two products whose zeros are also an operand, if that is asked for."""
    weights = {"w": EYE, "zeros": np.zeros(8, np.float32), "ones": np.ones(8, np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "zeros"], ["a"], name="product"),
        helper.make_node("Max", ["a", "zeros" if shared else "ones"], ["y"], name="most"),
    ]
    return graphs.model(nodes, weights)


def norm(batch: int) -> Any:
    """A layer normalization of so many batches."""
    weights = {"axis": np.array([1]), "scale": np.ones(8, np.float32), "b": np.ones(8, np.float32)}
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["whole"], name="whole"),
        helper.make_node("LayerNormalization", ["whole", "scale", "b"], ["y"], name="norm"),
    ]
    model = graphs.model(nodes, weights, out=[batch, 1, 8])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    return model


def root() -> Any:
    """A norm of single operators."""
    weights = {"epsilon": np.float32(1e-6)}
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"], name="square"),
        helper.make_node("Add", ["squares", "epsilon"], ["sum"], name="add"),
        helper.make_node("Sqrt", ["sum"], ["root"], name="root"),
        helper.make_node("Div", ["x", "root"], ["y"], name="scale"),
    ]
    return graphs.model(nodes, weights)


def found(model: Any, folder: Path, params: Mapping[str, Any], *inputs: str) -> Path:
    """What the stage writes for a graph."""
    model_file.save(model, folder / "optimize")
    out, temp = folder / "out", folder / "temp"
    out.mkdir()
    temp.mkdir()
    given = {name: folder / name for name in inputs}
    rewrites.run(StageJob("rewrites", params, Request({}, {}, {}), given, out), temp)
    return out


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (gemms(shared=False), []),
        (gemms(shared=True), ["biases"]),
        (norm(1), []),
        (norm(2), ["biases"]),
        (root(), ["epsilons"]),
    ],
    ids=["nothing", "a bias that is an operand", "one batch", "several batches", "an epsilon"],
)
def test_what_a_graph_needs_of_the_rewrites_of_a_provider(
    model: Any, names: list[str], tmp_path: Path
) -> None:
    params = {"precision": "w8a16", "rewrites": sorted(REWRITES)}
    assert rewrites.read(found(model, tmp_path / "all", params, "optimize")) == names
    fewer = {**params, "rewrites": ["pools"]}
    assert rewrites.read(found(model, tmp_path / "fewer", fewer, "optimize")) == []


def test_a_graph_that_needs_none_is_quantized_as_for_a_provider_without_any(
    tmp_path: Path,
) -> None:
    params = {"precision": "w8a16", "rewrites": sorted(REWRITES)}
    own = found(gemms(shared=False), tmp_path / "own", params, "optimize")
    none = found(gemms(shared=False), tmp_path / "none", {})
    assert (own / rewrites.FILE).read_bytes() == (none / rewrites.FILE).read_bytes()


def test_a_graph_that_is_quantized_already_is_left_to_the_next_stage(tmp_path: Path) -> None:
    model = gemms(shared=True)
    scale = onnx.numpy_helper.from_array(np.float32(1), "scale")
    model.graph.initializer.append(scale)
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "scale"], ["q"]))
    params = {"precision": "w8a16", "rewrites": sorted(REWRITES)}
    assert rewrites.read(found(model, tmp_path, params, "optimize")) == []
