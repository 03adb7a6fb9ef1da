"""int8 weights, float arithmetic: a standard DequantizeLinear in front of each large weight.

Few providers know ONNX Runtime's own 8-bit weight-only operator (MatMulNBits); a dequantized
initializer is plain ONNX that every runtime loads, and saves as many bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.sources import model_file, onnx_graph
from workers.sources.errors import quantize_error

_WEIGHTS = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1, "Gather": 0}
"""Operator -> the index of its weight among its inputs."""
_MIN_ELEMENTS = 1024


def convert(source: Path, blocked: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The graph with int8 weights, and facts about it."""
    model = model_file.load(source / model_file.MODEL)
    if onnx_graph.opset(model) < 13:
        raise quantize_error(
            "int8 weights per channel need opset 13 or newer", "raise the opset of the cell"
        )
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    axes = dict(_quantizable(model.graph, weights, blocked))
    if not axes:
        raise quantize_error(f"no weight of {_MIN_ELEMENTS} or more elements to quantize")
    nodes = [_replace(model.graph, weights[name], axis) for name, axis in axes.items()]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return model, {"weights": len(axes), "types": {"int8": len(axes)}}


def _quantizable(
    graph: Any, weights: dict[str, Any], blocked: Sequence[str]
) -> Iterator[tuple[str, int]]:
    """Weights that only quantizable operators read, each with its channel axis."""
    import onnx

    users: dict[str, list[tuple[Any, int]]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            users.setdefault(name, []).append((node, index))
    outputs = {value.name for value in graph.output}
    for name, tensor in weights.items():
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2:
            continue
        if math.prod(tensor.dims) < _MIN_ELEMENTS or name in outputs or not users.get(name):
            continue
        if all(
            _WEIGHTS.get(node.op_type) == index and node.op_type not in blocked
            for node, index in users[name]
        ):
            node = users[name][0][0]
            yield name, len(tensor.dims) - 1 if node.op_type == "MatMul" else output_axis(node)


def output_axis(node: Any) -> int:
    """The axis of an operator's weight that belongs to its outputs (rows of a table: Gather)."""
    if node.op_type == "Gemm":
        transposed = any(item.name == "transB" and item.i for item in node.attribute)
        return 0 if transposed else 1
    return 1 if node.op_type == "ConvTranspose" else 0


def _replace(graph: Any, tensor: Any, axis: int) -> Any:
    """Replace a weight by int8 values, scales and zero points."""
    import numpy as np
    from onnx import helper, numpy_helper

    name = tensor.name
    values = numpy_helper.to_array(tensor)
    others = tuple(index for index in range(values.ndim) if index != axis)
    peak = np.abs(values).max(axis=others)
    scale = np.where(peak > 0, peak / 127, 1).astype(np.float32)
    shape = [-1 if index == axis else 1 for index in range(values.ndim)]
    rounded = np.rint(values / scale.reshape(shape)).clip(-127, 127).astype(np.int8)
    tensor.CopyFrom(numpy_helper.from_array(rounded, f"{name}_int8"))
    graph.initializer.append(numpy_helper.from_array(scale, f"{name}_scale"))
    graph.initializer.append(numpy_helper.from_array(np.zeros_like(scale, np.int8), f"{name}_zero"))
    return helper.make_node(
        "DequantizeLinear",
        [f"{name}_int8", f"{name}_scale", f"{name}_zero"],
        [name],
        name=f"{name}_dequantize",
        axis=axis,
    )
