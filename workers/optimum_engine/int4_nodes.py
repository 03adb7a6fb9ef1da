"""The nodes and tensors that represent a weight in 4-bit blocks, or a table of int8 rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.optimum_engine import weight_only
from workers.sources import weight_file

Blocks = tuple[Any, Any, Any]
"""Of a matrix [inputs, outputs]: its numbers from 0 to 15, and the scale and the zero of each
block, [blocks, outputs]; no zeros: 8 everywhere."""


def packed(numbers: Any) -> Any:
    """Two numbers in a byte, the first one low."""
    import numpy as np

    flat = numbers.ravel()
    if len(flat) % 2:
        flat = np.append(flat, np.uint8(0))
    return flat[0::2] | (flat[1::2] << np.uint8(4))


def dequantize(graph: Any, tensor: Any, nodes: Sequence[Any], blocks: Blocks, size: int) -> None:
    """Put a DequantizeLinear in the place of a weight."""
    from onnx import TensorProto, helper, numpy_helper

    name, (numbers, scales, zeros) = tensor.name, blocks
    kind = TensorProto.INT4 if zeros is None else TensorProto.UINT4
    if zeros is None:
        numbers ^= 8  # from 0..15 to the four bits of -8..7
    parts = [(f"{name}_int4", numbers), *([] if zeros is None else [(f"{name}_zero", zeros)])]
    made = [
        helper.make_tensor(key, kind, array.shape, packed(array).tobytes(), raw=True)
        for key, array in parts
    ]
    tensor.CopyFrom(made[0])
    graph.initializer.extend([numpy_helper.from_array(scales, f"{name}_scale"), *made[1:]])
    inputs = [f"{name}_int4", f"{name}_scale", *(one.name for one in made[1:])]
    label = f"{name}_dequantize"
    graph.node.insert(
        0,
        helper.make_node("DequantizeLinear", inputs, [name], label, axis=0, block_size=size),
    )
    for node in nodes:
        for attribute in [one for one in node.attribute if one.name == "transB"]:
            node.attribute.remove(attribute)


def multiply(
    graph: Any, tensor: Any, nodes: Sequence[Any], blocks: Blocks, size: int, level: int
) -> None:
    """Put MatMulNBits in the place of the nodes that read a weight.

    `level`: what it may round its input to before it multiplies (4: int8); 0 leaves it open.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    name, (numbers, scales, zeros) = tensor.name, blocks
    inputs, outputs = numbers.shape
    shape = (outputs, inputs // size, size // 2)
    tensor.CopyFrom(numpy_helper.from_array(packed(numbers.T).reshape(shape), f"{name}_int4"))
    weights = [f"{name}_int4", f"{name}_scale"]
    scale = np.ascontiguousarray(scales.T).ravel()
    graph.initializer.append(numpy_helper.from_array(scale, weights[1]))
    if zeros is not None:
        if len(zeros) % 2:  # each output begins with a byte of its own
            zeros = np.vstack([zeros, np.full_like(zeros[:1], 0)])
        weights.append(f"{name}_zero")
        graph.initializer.append(numpy_helper.from_array(packed(zeros.T), weights[2]))
    for node in nodes:
        bias = node.input[2] if len(node.input) > 2 else ""
        result = node.output[0]
        product = f"{result}_product" if bias else result
        made = helper.make_node(
            "MatMulNBits",
            [node.input[0], *weights],
            [product],
            node.name,
            domain="com.microsoft",
            K=inputs,
            N=outputs,
            bits=4,
            block_size=size,
            **({"accuracy_level": level} if level else {}),
        )
        node.CopyFrom(made)
        if bias:
            label = f"{result}_bias"
            graph.node.append(helper.make_node("Add", [product, bias], [result], label))


def scale_rows(graph: Any, tensor: Any, nodes: Sequence[Any], source: Path) -> None:
    """Let Gather look up int8 rows and their scales, and multiply these."""
    from onnx import TensorProto, helper, numpy_helper

    name = tensor.name
    rows, scale = weight_only.to_int8(weight_file.values(tensor, source), 0)
    tensor.CopyFrom(numpy_helper.from_array(rows, f"{name}_int8"))
    graph.initializer.append(numpy_helper.from_array(scale[:, None], f"{name}_scale"))
    for node in nodes:
        result, where = node.output[0], node.input[1]
        found, scales, floats = (f"{result}_{word}" for word in ("int8", "scale", "float"))
        node.CopyFrom(
            helper.make_node("Gather", [f"{name}_int8", where], [found], node.name, axis=0)
        )
        graph.node.extend(
            [
                helper.make_node("Gather", [f"{name}_scale", where], [scales], scales, axis=0),
                helper.make_node("Cast", [found], [floats], floats, to=TensorProto.FLOAT),
                helper.make_node("Mul", [floats, scales], [result], f"{result}_scaled"),
            ]
        )
