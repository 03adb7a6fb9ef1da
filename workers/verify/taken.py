"""How much of a graph a provider has taken: of the nodes that compute, and of the weights."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.session import CPU
from workers.sources.onnx_graph import graphs, load_to_inspect, tensor_bytes

MOVING = frozenset((
    "Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "DequantizeLinear", "Expand",
    "Flatten", "Identity", "QuantizeLinear", "Reshape", "Shape", "Size", "Slice", "Split",
    "Squeeze", "Transpose", "Unsqueeze",
))  # fmt: skip
"""Operators that compute nothing: a provider leaves them at the edges of its part of the graph."""
_CHANGED = re.compile(r"(/duplicated)?(_token_\d+)?(_nchwc|_nhwc|/MatMulAddFusion)?$")
"""What ONNX Runtime appends to the name of a node that it changes before it assigns nodes."""


def taken(file: Path, assigned: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, list[int]]:
    """Computing nodes and bytes of weights: what providers other than ONNX Runtime's CPU have of
    them, and all.

    `assigned`: by provider, type and name of each node of the session. A weight is taken if a node
    is taken that reads it; one that no node of the session reads by its name is set aside.
    """
    model = load_to_inspect(file)
    names = {node.name for graph in graphs(model) for node in graph.node}
    of_shapes = set(_of_shapes(model))
    found: dict[str, list[int]] = {"nodes": [0, 0], "weights": [0, 0]}
    where: dict[str, bool] = {}
    for provider, rows in assigned.items():
        for kind, told in rows:
            name = told if told in names else _CHANGED.sub("", told)
            where[name] = where.get(name, False) or provider != CPU
            if kind not in MOVING and name not in of_shapes:
                found["nodes"][0] += provider != CPU
                found["nodes"][1] += 1
    sizes, readers = _weights(model, where)
    for weight, mine in readers.items():
        found["weights"][0] += sizes[weight] if any(mine) else 0
        found["weights"][1] += sizes[weight]
    return found


def _of_shapes(model: Any) -> Iterator[str]:
    """The names of nodes that compute sizes from the shapes of tensors."""
    for graph in graphs(model):
        fixed, sizes = {one.name for one in graph.initializer}, set[str]()
        for node in graph.node:
            given = [name for name in node.input if name not in fixed and name]
            if node.op_type in {"Shape", "Size"} or (given and sizes.issuperset(given)):
                sizes.update(node.output)
                yield node.name
            elif not given:
                fixed.update(node.output)


def _weights(model: Any, where: Mapping[str, bool]) -> tuple[dict[str, int], dict[str, list[bool]]]:
    """The bytes of each weight, and whether each node that reads it is taken.

    A node that the session does not have was folded: who reads its result reads its weights.
    """
    sizes: dict[str, int] = {}
    readers: defaultdict[str, list[bool]] = defaultdict(list)
    for graph in graphs(model):
        held = {one.name: {one.name} for one in graph.initializer}
        sizes |= {one.name: tensor_bytes(one) for one in graph.initializer}
        for node in graph.node:
            for item in node.attribute if node.op_type == "Constant" else ():
                if item.HasField("t"):
                    held[node.output[0]] = {node.output[0]}
                    sizes[node.output[0]] = tensor_bytes(item.t)
            read = {one for name in node.input for one in held.get(name, ())}
            if node.name in where:
                for weight in read:
                    readers[weight].append(where[node.name])
            elif read and all(name in held for name in node.input if name):
                held |= dict.fromkeys(node.output, read)
    return sizes, readers
