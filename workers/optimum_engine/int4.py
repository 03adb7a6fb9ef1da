"""4-bit weights, float arithmetic: the weights of products, in blocks that share a scale.

There are two forms; the row of the target names one (`weight_form`):

- `DequantizeLinear` of opset 21 in front of MatMul and Gemm is plain ONNX. OpenVINO takes it, QNN
  opens it (the product runs on the device, the dequantization on the CPU), and ONNX Runtime's CPU
  provider converts it to MatMulNBits whenever it opens a session at the level extended or above, if
  the weight is not transposed; so weights of Gemm are written untransposed.
- `MatMulNBits` is ONNX Runtime's own operator, for any opset. Its CPU provider executes this
  operator anyway; writing it saves the conversion at every start and shares the opset and export of
  the other cells. It is the only form for DirectML, whose opset has no 4-bit integers.

Rows of tables (Gather) become int8, looked up first and scaled afterwards: Gather takes no 4-bit
integers, and a DequantizeLinear before it would convert the whole table to floats in every run.
Everything else (convolutions, weights that blocks do not divide) stays unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix.policy import FOUR_BIT_OPSET, PLAIN_FORM
from workers.optimum_engine import weight_only
from workers.sources import model_file, onnx_graph, weight_file
from workers.sources.errors import quantize_error

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


_PRODUCTS = {"MatMul", "Gemm"}


def convert(
    source: Path, blocked: Sequence[str], params: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The graph with 4-bit weights, and facts about it; other weights stay in `source`."""
    model = model_file.load_graph(source)
    graph, plain, size = model.graph, params["form"] == PLAIN_FORM, params["block_size"]
    if (least := FOUR_BIT_OPSET if plain else 13) > (found := onnx_graph.opset(model)):
        raise quantize_error(
            f"4-bit weights as {params['form']} need opset {least}, the graph has {found}",
            f"raise the opset of the cell to {least}",
        )
    products, tables, left = 0, 0, 0
    inner = {
        name
        for one in list(onnx_graph.graphs(model))[1:]
        for node in one.node
        for name in node.input
    }
    for tensor, nodes in list(weight_only.quantizable(graph, blocked)):
        if tensor.name in inner:
            left += 1
        elif _is_table(tensor, nodes):
            scale_rows(graph, tensor, nodes, source)
            tables += 1
        elif _is_product(tensor, nodes, size, plain=plain):
            values = weight_file.values(tensor, source)
            matrix = values.T if _transposed(nodes[0]) else values  # [inputs, outputs]
            blocks = quantized(matrix, size, symmetric=params["symmetric"])
            if plain:
                dequantize(graph, tensor, nodes, blocks, size)
            else:
                level = params.get("accuracy_level", 0)
                multiply(graph, tensor, nodes, blocks, size, level)
            products += 1
        else:
            left += 1
    if not products:
        raise quantize_error(
            f"no weight of MatMul or Gemm has {weight_only.MIN_ELEMENTS} or more elements in "
            f"blocks of {size}",
            "choose another precision or block_size for this model in the catalog",
        )
    if not plain and all(item.domain != "com.microsoft" for item in model.opset_import):
        model.opset_import.add(domain="com.microsoft", version=1)
    name = "int4" if plain and params["symmetric"] else "uint4"
    types = {name: products, **({"int8": tables} if tables else {})}
    return model, {"weights": products + tables, "left": left, "types": types, **params}


def _is_table(tensor: Any, nodes: Sequence[Any]) -> bool:
    return len(tensor.dims) == 2 and all(
        node.op_type == "Gather" and not _given(node, "axis") for node in nodes
    )


def _is_product(tensor: Any, nodes: Sequence[Any], size: int, *, plain: bool) -> bool:
    if len(tensor.dims) != 2 or any(node.op_type not in _PRODUCTS for node in nodes):
        return False
    if len({_transposed(node) for node in nodes}) > 1:
        return False
    if not plain and any(
        _given(node, "transA") or _given(node, "alpha", 1.0) != 1 or _given(node, "beta", 1.0) != 1
        for node in nodes
    ):
        return False
    return bool(tensor.dims[1 if _transposed(nodes[0]) else 0] % size == 0)


def _given(node: Any, name: str, default: float = 0) -> float:
    from onnx import helper

    found = (helper.get_attribute_value(one) for one in node.attribute if one.name == name)
    return float(next(found, default))


def _transposed(node: Any) -> bool:
    return bool(_given(node, "transB"))


def quantized(matrix: Any, size: int, *, symmetric: bool) -> Blocks:
    """Of a matrix [inputs, outputs]: numbers from 0 to 15, and a scale and a zero of each block."""
    import numpy as np

    inputs, outputs = matrix.shape
    numbers = np.empty((inputs, outputs), np.uint8)
    scales = np.empty((inputs // size, outputs), np.float32)
    zeros = np.full((inputs // size, outputs), 8, np.uint8)
    for part in weight_only.parts(matrix.T):
        piece = np.ascontiguousarray(matrix[:, part]).reshape(inputs // size, size, -1)
        low, high = np.minimum(piece.min(axis=1), 0), np.maximum(piece.max(axis=1), 0)
        if symmetric:
            scale = np.maximum(low / np.float32(-8), high / np.float32(7))
        else:
            scale = (high - low) / np.float32(15)
        scale[scale == 0] = 1
        if not symmetric:
            zeros[:, part] = np.rint(-low / scale).clip(0, 15)
        steps = np.rint(piece / scale[:, None]) + zeros[:, None, part]
        numbers[:, part] = steps.clip(0, 15).reshape(inputs, -1)
        scales[:, part] = scale
    return numbers, scales, None if symmetric else zeros
