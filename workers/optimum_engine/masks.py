"""Constants that hide positions from a softmax, made shallow before a graph is quantized.

Transformers hide positions by adding the lowest float (or -10000, or minus infinity) to the scores
of an attention. In a quantization range that value would leave one step for everything else, so a
quantized graph gets a smaller one: large enough that softmax gives 0 to a hidden position, small
enough that scores keep their resolution. A large number that is anything else, such as the bound of
a Clip, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from workers.sources import onnx_graph, weight_file

DEPTH = {"w8a16": 100.0, "w8a8": 50.0}
"""The value of a mask in a quantized graph, in place of a lower one."""
HIDES = 9e3
"""A larger value hides a position: -10000 is usual, and slopes of ALiBi end before that."""
ENDLESS = 1e30
"""A larger value is no result of a computation."""

_ENDS = {
    "Softmax": (0,), "LogSoftmax": (0,), "Exp": (0,), "Attention": (3, 5), "BiasSoftmax": (0, 1),
    "MultiHeadAttention": (5,), "GroupQueryAttention": (10,),
}  # fmt: skip
"""Operators that turn a low value into 0, and the inputs in which they expect one."""
_ANY = range(1 << 10)
_CARRIERS: dict[str, Iterable[int]] = {
    **dict.fromkeys(("Add", "Sub", "Sum", "Mul", "Concat", "Max", "Min"), _ANY),
    **dict.fromkeys(
        ("Div", "Neg", "Identity", "Cast", "Reshape", "Transpose", "Unsqueeze", "Squeeze",
         "Expand", "Slice", "Gather", "GatherND", "GatherElements", "Tile", "Flatten", "Split",
         "Trilu", "Clip", "Dropout"), (0,),
    ),
    **dict.fromkeys(("ScatterND", "ScatterElements", "Pad"), (0, 2)),
    "Where": (1, 2),
}  # fmt: skip
"""Operators whose result is a mask if one of these inputs is."""
_BOUNDS = {"Max": -1, "Min": 1}
"""Operators of which a constant is a bound, and the sign of one that bounds nothing."""
_COMPARING = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")


def acting(model: Any) -> set[str]:
    """The tensors that a softmax receives as scores, or that are added to them or select them."""
    makers: dict[str, list[tuple[Any, str]]] = {}
    nodes = [node for graph in onnx_graph.graphs(model) for node in graph.node]
    for node in nodes:
        for name in node.output:
            makers.setdefault(name, []).append((node, name))
    constants = {tensor.name for graph in onnx_graph.graphs(model) for tensor in graph.initializer}
    constants.update(node.output[0] for node in nodes if node.op_type == "Constant")
    found: set[str] = set()
    pending = list(chain.from_iterable(_at(node, _ENDS.get(node.op_type, ())) for node in nodes))
    while pending:
        name = pending.pop()
        if not name or name in found:
            continue
        found.add(name)
        for node, made in makers.get(name, ()):
            pending += (one for one in _carried(node, made, constants))
    return found


def _carried(node: Any, made: str, constants: set[str]) -> Iterator[str]:
    """The inputs of an operator that are masks if this result of it is one."""
    if node.op_type == "If":
        place = list(node.output).index(made)
        yield from (item.g.output[place].name for item in node.attribute if item.HasField("g"))
    names = _at(node, _CARRIERS.get(node.op_type, ()))
    yield from (name for name in names if not (node.op_type in _BOUNDS and name in constants))


def _at(node: Any, places: Iterable[int]) -> Iterator[str]:
    return (name for place, name in enumerate(node.input) if place in places)


def make_shallow(model: Any, depth: float, source: Path) -> int:
    """Replace what hides positions in the constants of a graph; returns how many had some."""
    masks = acting(model)
    uses: dict[str, list[tuple[Any, int, bool]]] = {}
    for graph in onnx_graph.graphs(model):
        for node in graph.node:
            for place, name in enumerate(node.input):
                uses.setdefault(name, []).append((node, place, _hides(node, place, masks)))
        for value in graph.output:
            uses.setdefault(value.name, []).append((None, 0, False))
    count = 0
    for graph in onnx_graph.graphs(model):
        for name, tensor, whole in list(_constants(graph)):
            wanted = [(node, place) for node, place, hides in uses.get(name, ()) if hides]
            alone = len(wanted) == len(uses.get(name, ()))
            shallow = _shallow(tensor, depth, source) if wanted and (alone or whole) else None
            if shallow is None:
                continue
            count += 1
            if alone:
                shallow.name = tensor.name
                tensor.CopyFrom(shallow)
                continue
            shallow.name = f"{name}/shallow"
            graph.initializer.append(shallow)
            for node, place in wanted:
                node.input[place] = shallow.name
    _drop_bounds(model, source)
    return count


def hidden(model: Any, depth: float, source: Path) -> set[str]:
    """The tensors that are as low as a mask wherever it hides something, in samples or not.

    Samples may hide nothing; a range without the mask's value would then let every hidden position
    be seen.
    """
    from onnx import TensorProto

    masks = acting(model)
    nodes = [node for graph in onnx_graph.graphs(model) for node in graph.node]
    found = {
        value.name
        for value in onnx_graph.inputs(model)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and "mask" in value.name
    } & masks
    for graph in onnx_graph.graphs(model):
        for name, tensor, _whole in _constants(graph):
            if name in masks and tensor.data_type == TensorProto.FLOAT:
                values = weight_file.values(tensor, source)
                if values.size and max(values.max(), -values.min()) >= depth:
                    found.add(name)
    before = 0
    while before < len(found):
        before = len(found)
        for node in nodes:
            carried = _at(node, _CARRIERS.get(node.op_type, ()))
            if node.op_type not in _BOUNDS and not found.isdisjoint(carried):
                found.update(masks & set(node.output))
    return found


def _hides(node: Any, place: int, masks: set[str]) -> bool:
    """Whether an input of an operator may be a mask, or is compared with one."""
    if node.op_type in _COMPARING:
        return any(name in masks for name in node.input)
    if node.op_type in _ENDS:
        return place in _ENDS[node.op_type]
    carried = place in _CARRIERS.get(node.op_type, ()) and node.op_type not in _BOUNDS
    return carried and any(name in masks for name in node.output)


def _constants(graph: Any) -> Iterator[tuple[str, Any, bool]]:
    """The constants of a graph by name: weights, and what Constant and ConstantOfShape hold.

    Of the last one it is only the value that all elements have, not the whole tensor.
    """
    for tensor in graph.initializer:
        yield tensor.name, tensor, True
    for node in graph.node:
        if node.op_type in {"Constant", "ConstantOfShape"}:
            for item in node.attribute:
                if item.HasField("t"):
                    yield node.output[0], item.t, node.op_type == "Constant"


def _shallow(tensor: Any, depth: float, source: Path) -> Any | None:
    """A constant with values that are less low; None: it hides nothing."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    if tensor.data_type != TensorProto.FLOAT:
        return None
    values = weight_file.values(tensor, source)
    if not values.size or (values.max() <= HIDES and values.min() >= -HIDES):
        return None
    hidden = np.abs(values) > HIDES
    shallow = np.where(hidden, np.sign(values) * np.float32(depth), values)
    return numpy_helper.from_array(shallow.astype(np.float32))


def _drop_bounds(model: Any, source: Path) -> None:
    """Drop Max and Min with the lowest and the highest float, which change no number."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    kept = {value.name for value in graph.output}
    for node in [node for node in graph.node if node.op_type in _BOUNDS and len(node.input) == 2]:
        bounds = [name for name in node.input if name in weights and len(weights[name].dims) == 0]
        if len(bounds) != 1 or node.output[0] in kept:
            continue
        bound = float(weight_file.values(weights[bounds[0]], source))
        if bound * _BOUNDS[node.op_type] < ENDLESS:
            continue
        other = next(name for name in node.input if name != bounds[0])
        for user in chain.from_iterable(one.node for one in onnx_graph.graphs(model)):
            for place, name in enumerate(user.input):
                if name == node.output[0]:
                    user.input[place] = other
        graph.node.remove(node)
