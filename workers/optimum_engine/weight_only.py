"""int8 weights, float arithmetic: a standard DequantizeLinear in front of each large weight.

Few providers support ONNX Runtime's own 8-bit weight-only operator (MatMulNBits); a dequantized
initializer is standard ONNX that every runtime loads, and saves as many bytes. Weights are read one
at a time, and only a part of each is in memory as floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.sources import model_file, onnx_graph, weight_file
from workers.sources.errors import quantize_error

_WEIGHTS = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1, "Gather": 0}
"""Operator -> the index of its weight among its inputs."""
MIN_ELEMENTS = 1024
_PART = 1 << 22
"""Elements of a weight that are in memory at once."""


def convert(source: Path, blocked: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The graph with int8 weights, and facts about it; other weights stay in `source`."""
    model = model_file.load_graph(source)
    if onnx_graph.opset(model) < 13:
        raise quantize_error(
            "int8 weights per channel need opset 13 or newer", "raise the opset of the cell"
        )
    found = list(quantizable(model.graph, blocked))
    if not found:
        raise quantize_error(f"no weight of {MIN_ELEMENTS} or more elements to quantize")
    nodes = [
        _replace(model.graph, tensor, _axis(tensor, nodes[0]), source) for tensor, nodes in found
    ]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return model, {"weights": len(found), "types": {"int8": len(found)}}


def quantizable(graph: Any, blocked: Sequence[str]) -> Iterator[tuple[Any, list[Any]]]:
    """Large float weights that nodes read only as weights, each with those nodes."""
    import onnx

    users: dict[str, list[tuple[Any, int]]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            users.setdefault(name, []).append((node, index))
    outputs = {value.name for value in graph.output}
    for tensor in list(graph.initializer):
        name = tensor.name
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2:
            continue
        if math.prod(tensor.dims) < MIN_ELEMENTS or name in outputs or not users.get(name):
            continue
        if all(
            _WEIGHTS.get(node.op_type) == index and node.op_type not in blocked
            for node, index in users[name]
        ):
            yield tensor, [node for node, _ in users[name]]


def _axis(tensor: Any, node: Any) -> int:
    return len(tensor.dims) - 1 if node.op_type == "MatMul" else output_axis(node)


def output_axis(node: Any) -> int:
    """The axis of an operator's weight that belongs to its outputs (rows of a table: Gather)."""
    if node.op_type == "Gemm":
        transposed = any(item.name == "transB" and item.i for item in node.attribute)
        return 0 if transposed else 1
    return 1 if node.op_type == "ConvTranspose" else 0


def _replace(graph: Any, tensor: Any, axis: int, source: Path) -> Any:
    """Replace a weight by int8 values, scales and zero points."""
    import numpy as np
    from onnx import helper, numpy_helper

    name = tensor.name
    rounded, scale = to_int8(weight_file.values(tensor, source), axis)
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


def to_int8(values: Any, axis: int) -> tuple[Any, Any]:
    """int8 values and the scale of each index of an axis."""
    import numpy as np

    rounded = np.empty(values.shape, np.int8)
    scale = np.empty(values.shape[axis], np.float32)
    whole, made = np.moveaxis(values, axis, 0), np.moveaxis(rounded, axis, 0)
    for part in parts(whole):
        piece = whole[part].reshape(len(whole[part]), -1)
        peak = np.abs(piece).max(axis=1)
        scale[part] = np.where(peak > 0, peak / 127, 1)
        steps = np.rint(piece / scale[part, None]).clip(-127, 127)
        made[part] = steps.reshape(whole[part].shape)
    return rounded, scale


def parts(array: Any) -> Iterator[slice]:
    """Slices of the first axis that are small enough to work on."""
    step = max(1, _PART // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), step):
        yield slice(start, start + step)
