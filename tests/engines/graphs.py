"""Small ONNX graphs by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROWS = np.random.default_rng(5).standard_normal((2, 8)).astype(np.float32)
"""Inputs of a graph."""


def initializer(name: str, array: Any) -> Any:
    """A weight."""
    return numpy_helper.from_array(np.asarray(array), name)


def model(nodes: list[Any], weights: dict[str, Any], *, opset: int = 17, out: Any = None) -> Any:
    """x [batch, 8] -> y."""
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out or ["batch", "width"])],
        [initializer(name, array) for name, array in weights.items()],
    )
    made = helper.make_model(
        graph,
        opset_imports=[
            helper.make_opsetid("", opset),
            helper.make_opsetid("com.microsoft", 1),
        ],
        ir_version=8,
    )
    made.doc_string = "/somewhere/model.py"
    return made


def matmul(width: int = 256) -> Any:
    """y = x @ w, with a weight that is large enough for everything."""
    weight = np.random.default_rng(3).standard_normal((8, width)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    node.doc_string = "/usr/lib/python3/site-packages/torch/nn/linear.py(12)"
    entry = node.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.stack_trace", "File /somewhere/model.py"
    return model([node], {"w": weight})


def outputs(model: Any, rows: Any = ROWS) -> Any:
    """What a graph makes of rows."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": rows})[0]
