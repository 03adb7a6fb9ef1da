"""Attention masks in quantized graphs: a finite depth instead of minus infinity.

Transformers hide positions by adding the lowest float. In a quantization range that value leaves
one step for everything else, so a quantized graph gets a shallower mask: deep enough that softmax
gives nothing to a hidden position, shallow enough that scores keep their resolution.
"""

from __future__ import annotations

from typing import Any

DEPTH = {"w8a16": 100.0, "w8a8": 50.0}
ENDLESS = 1e30
"""A larger value is a mask, not the result of a computation."""


def make_shallow(model: Any, depth: float) -> int:
    """Replace endless values in the constants of a graph; returns how many tensors had some."""
    from workers.sources import onnx_graph

    changed = 0
    for graph in onnx_graph.graphs(model):
        for tensor in graph.initializer:
            changed += _shallow(tensor, depth)
        for node in graph.node:
            if node.op_type in {"Constant", "ConstantOfShape"}:
                changed += sum(
                    _shallow(item.t, depth) for item in node.attribute if item.HasField("t")
                )
    return changed


def _shallow(tensor: Any, depth: float) -> bool:
    import numpy as np
    from onnx import TensorProto, numpy_helper

    if tensor.data_type != TensorProto.FLOAT:
        return False
    values = numpy_helper.to_array(tensor)
    endless = np.abs(values) > ENDLESS
    if not endless.any():
        return False
    shallow = np.where(endless, np.sign(values) * np.float32(depth), values)
    tensor.CopyFrom(numpy_helper.from_array(shallow.astype(np.float32), tensor.name))
    return True
