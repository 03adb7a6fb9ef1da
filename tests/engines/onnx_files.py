"""ONNX files made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def convolution(path: Path, *, opset: int = 17, external: bool = False, ir: int = 10) -> None:
    """An image classifier of one convolution, with open batch, height and width."""
    weight = np.random.default_rng(1).standard_normal((64, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(
                "image", TensorProto.FLOAT, ["n", 3, "p2o.Dynamic.2", "wide"]
            )
        ],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 64, 1, 1])],
        [numpy_helper.from_array(weight, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        made,
        str(path),
        save_as_external_data=external,
        location="weights.bin" if external else None,
        size_threshold=0,
    )
