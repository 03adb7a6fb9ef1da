"""fp16: the graph in half precision, with float32 where half precision cannot hold the values.

ONNX Runtime's CPU provider computes fp16 operators in float32, so a run there says nothing of the
range. The float graph is run on samples instead: an operator whose values are beyond the largest
fp16 number, or are lost below the smallest, stays in float32, together with those that read them.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.optimum_engine import calibrate, masks, weight_only
from workers.optimum_engine.architectures.patched import patched
from workers.sources import model_file, onnx_graph, runtime, weight_file
from workers.sources.errors import one_line, quantize_error

HIGHEST = 65504.0
LOWEST = 2.0**-24
"""The largest fp16 number and the smallest above 0."""
_DEPTH = 1e4
"""The value of a mask, to which scores can be added."""
LOST = 1e-3
"""The share of a tensor's length that may be lost below the smallest number."""


def convert(
    source: Path, temp: Path, blocked: Sequence[str], samples: Sequence[Mapping[str, Any]]
) -> tuple[Any, dict[str, Any]]:
    """The graph in half precision with float32 inputs and outputs, and facts about it."""
    import onnx
    from onnxruntime.transformers import float16

    typed = temp / "typed"
    model = model_file.load_graph(source)
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    masks.make_shallow(model, _DEPTH, source)
    model_file.save_graph(model, source, typed)
    runtime.add_types(typed, temp / "types")
    model = model_file.load_graph(typed)
    kept = _kept(model, typed, temp / "range", samples)
    beside = _floats_beside(model, source)
    # It reads a whole weight for its shape.
    named = patched("make_value_info_from_tensor", _value_info, float16)
    with warnings.catch_warnings(record=True) as truncated, named:
        warnings.simplefilter("always")
        try:
            model = float16.convert_float_to_float16(
                model,
                keep_io_types=True,
                max_finite_val=HIGHEST,
                disable_shape_infer=True,
                op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *blocked],
                node_block_list=sorted(kept),
            )
        except (ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
            raise quantize_error(f"fp16 conversion failed: {one_line(error)}") from error
        _halve(model, beside, source)
    if kept:
        _join(model.graph)
    halves = sum(t.data_type == onnx.TensorProto.FLOAT16 for t in model.graph.initializer)
    floats = sum(t.data_type == onnx.TensorProto.FLOAT for t in model.graph.initializer)
    del model.graph.value_info[:]
    facts: dict[str, Any] = {
        "types": {"float16": halves, "float": floats},
        "truncated_weights": len(truncated),
    }
    return model, facts | ({"floats": sorted(kept)} if kept else {})


def _kept(model: Any, source: Path, temp: Path, samples: Sequence[Mapping[str, Any]]) -> set[str]:
    """The operators with values on these samples, or constants, that fp16 cannot hold."""
    outside = _outside(model, source, temp, samples)
    hiding = masks.acting(model)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    kept = set()
    for node in model.graph.node:
        for name in node.input:
            if name in weights and name not in hiding and _constant_outside(weights[name], source):
                outside.add(node.output[0])
    for node in model.graph.node:
        if not outside.isdisjoint((*node.input, *node.output)):
            kept.add(node.name)
    return kept


def _constant_outside(tensor: Any, source: Path) -> bool:
    """Whether a constant has values that are too large, or a single one that would become 0."""
    from onnx import TensorProto

    if tensor.data_type != TensorProto.FLOAT:
        return False
    values = weight_file.values(tensor, source)
    size = max(float(values.max()), -float(values.min())) if values.size else 0.0
    return HIGHEST < size < masks.ENDLESS or (values.size == 1 and 0 < size < LOWEST)


def _outside(
    model: Any, source: Path, temp: Path, samples: Sequence[Mapping[str, Any]]
) -> set[str]:
    """The tensors that a sample gives values which fp16 cannot hold."""
    import onnx

    tensors = calibrate.float_tensors(model)
    hiding = masks.acting(model)
    inputs = {value.name for value in onnx_graph.inputs(model)}
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    present = {value.name for value in model.graph.output}
    wide.graph.output.extend(
        value for name, value in tensors.items() if name not in present | inputs
    )
    ready = runtime.session(model_file.save_graph(wide, source, temp))
    found: set[str] = set()
    for sample in samples:
        feeds = {name: sample[name] for name in inputs if name in sample}
        values = [(name, feeds[name]) for name in tensors.keys() & feeds.keys()]
        found.update(name for name, value in values if _is_outside(value, name in hiding))
        for names in calibrate.chunks(tensors, inputs):
            for name, value in zip(names, ready.run(names, feeds), strict=True):
                if _is_outside(value, name in hiding):
                    found.add(name)
    return found


def _is_outside(value: Any, hides: bool) -> bool:
    import numpy as np

    size = np.abs(value)
    if hides:
        size = size[size <= masks.HIDES]
    if not size.size or not (most := float(size.max())):
        return False
    if most > HIGHEST:
        return most <= masks.ENDLESS  # an endless value stays one
    if most >= 1:  # what is lost is too small to matter
        return False
    lost = size[size < LOWEST].astype(np.float64)
    return bool(np.linalg.norm(lost) > LOST * np.linalg.norm(size.astype(np.float64)))


def _value_info(tensor: Any) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)


def _floats_beside(model: Any, source: Path) -> set[str]:
    """The names of the float weights beside a graph; constants, which have no name, are read."""
    import onnx

    found = set()
    weights = {tensor.name for one in onnx_graph.graphs(model) for tensor in one.initializer}
    for tensor in onnx_graph.tensors(model):
        if tensor.name not in weights:
            weight_file.take_in(tensor, source)
        elif tensor.data_type == onnx.TensorProto.FLOAT and onnx_graph.external(tensor):
            found.add(tensor.name)
    return found


def _halve(model: Any, names: Container[str], source: Path) -> None:
    """Convert the weights beside a graph: the converter changes their type and not their bytes."""
    import numpy as np
    import onnx
    from onnxruntime.transformers.float16 import convert_np_to_float16

    for tensor in onnx_graph.tensors(model):
        if tensor.data_type != onnx.TensorProto.FLOAT16 or tensor.name not in names:
            continue
        tensor.data_type = onnx.TensorProto.FLOAT
        values = weight_file.values(tensor, source)
        halves = np.empty(values.shape, np.float16)
        for part in weight_only.parts(values):
            halves[part] = convert_np_to_float16(values[part])
        tensor.CopyFrom(onnx.numpy_helper.from_array(halves, tensor.name))


def _join(graph: Any) -> None:
    """Let operators that stay in float32 hand each other float32: the converter lets each of them
    round its results."""
    from onnx import TensorProto

    casts = [node for node in graph.node if node.op_type == "Cast"]
    types = {node.output[0]: node.attribute[0].i for node in casts}
    halved = {
        node.output[0]: node for node in casts if types[node.output[0]] == TensorProto.FLOAT16
    }
    results = {value.name for value in graph.output}
    for node in [node for node in casts if types[node.output[0]] == TensorProto.FLOAT]:
        before = halved.get(node.input[0])
        if before is None:
            continue
        node.input[0] = before.input[0]
        if node.output[0] not in results:
            for user in graph.node:
                for place, name in enumerate(user.input):
                    if name == node.output[0]:
                        user.input[place] = before.input[0]
    used = {name for node in graph.node for name in node.input} | results
    for node in casts:
        if node.output[0] not in used:
            graph.node.remove(node)
