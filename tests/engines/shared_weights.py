"""Quantized graphs that have the same weights and take inputs of different sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = np.random.default_rng(0).integers(0, 255, (512, 512), dtype=np.uint8)
SCALES = (
    ("x_s", 0.05, np.float32), ("W_s", 0.002, np.float32), ("y_s", 0.05, np.float32),
    ("zero", 128, np.uint8),
)  # fmt: skip


def quantized(rows: int, path: Path, depth: int = 1) -> Path:
    """x[rows, 512] multiplied by W as often as `depth` says, in QDQ form."""
    initializers = [
        numpy_helper.from_array(np.array(value, kind), name) for name, value, kind in SCALES
    ]
    initializers.append(numpy_helper.from_array(WEIGHTS, "W_q"))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_s", "zero"], ["q_0"]),
        helper.make_node("DequantizeLinear", ["q_0", "x_s", "zero"], ["d_0"]),
        helper.make_node("DequantizeLinear", ["W_q", "W_s", "zero"], ["W"]),
    ]
    for at in range(1, depth + 1):
        last = "y" if at == depth else f"d_{at}"
        nodes += [
            helper.make_node("MatMul", [f"d_{at - 1}", "W"], [f"m_{at}"]),
            helper.make_node("QuantizeLinear", [f"m_{at}", "y_s", "zero"], [f"q_{at}"]),
            helper.make_node("DequantizeLinear", [f"q_{at}", "y_s", "zero"], [last]),
        ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 512])],
        initializers,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path
