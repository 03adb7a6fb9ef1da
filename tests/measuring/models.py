"""Models whose time a test chooses by their size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def layers(path: Path, *, size: int, depth: int, batch: int = 8) -> Path:
    """So many times a matrix and a tanh; its only input `x` has the shape [batch, size]."""
    random = np.random.default_rng(depth)
    nodes, weights, last = [], [], "x"
    for number in range(depth):
        matrix = (random.standard_normal((size, size)) / size**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"h{number}"]))
        nodes.append(helper.make_node("Tanh", [f"h{number}"], [last := f"y{number}"]))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, size])
        for name in ("x", last)
    ]
    graph = helper.make_graph(nodes, "layers", ports[:1], ports[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path
