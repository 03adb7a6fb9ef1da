"""A graph with its connections: who makes a tensor, who uses it, and what is constant."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from workers.sources.onnx_graph import STANDARD, attributes

_FLOATS = {1, 10, 11}
"""float, float16, double."""


class View:
    """The main graph of a model, without the nodes that are constants."""

    def __init__(self, model: Any) -> None:
        graph = model.graph
        constants = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
        self.nodes = [node for node in graph.node if node.op_type != "Constant"]
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._weights |= {
            name: value
            for name, node in constants.items()
            if (value := attributes(node).get("value")) is not None
        }
        self._fixed = {*self._weights, *constants}
        for node in self.nodes:  # exporters write a shared weight as Identity of it
            if node.op_type == "Identity" and node.input[0] in self._fixed:
                self._fixed.add(node.output[0])
                if node.input[0] in self._weights:
                    self._weights[node.output[0]] = self._weights[node.input[0]]
        self._makers = {name: node for node in self.nodes for name in node.output if name}
        self._users: defaultdict[str, list[Any]] = defaultdict(list)
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self._users[name].append(node)

    def of(self, *types: str) -> list[Any]:
        """The nodes of these types in the standard domain."""
        return [node for node in self.nodes if is_a(node, *types)]

    def maker(self, name: str, *types: str) -> Any | None:
        """The node that makes a tensor, if it is of one of these types."""
        node = self._makers.get(name)
        return node if node is not None and is_a(node, *types) else None

    def makers(self, node: Any, *types: str) -> list[Any]:
        """The nodes of these types that make its inputs."""
        found = (self.maker(name, *types) for name in node.input)
        return [one for one in found if one is not None]

    def users(self, node: Any, *types: str) -> list[Any]:
        """The nodes of these types that use its first output."""
        return [one for one in self._users[node.output[0]] if is_a(one, *types)]

    def only_user(self, node: Any, *types: str) -> Any | None:
        """The one node that uses its first output, if it is of one of these types."""
        users = self._users[node.output[0]]
        return users[0] if len(users) == 1 and is_a(users[0], *types) else None

    def constant(self, name: str) -> bool:
        """Whether a tensor is part of the model."""
        return name in self._fixed

    def with_constant(self, node: Any) -> bool:
        """Whether one of its inputs is part of the model."""
        return any(self.constant(name) for name in node.input)

    def scalar(self, node: Any) -> float | None:
        """The one number among its inputs that is part of the model."""
        for name in node.input:
            tensor = self._weights.get(name)
            if tensor is not None and math.prod(tensor.dims) == 1 and tensor.data_type in _FLOATS:
                return _number(tensor)
        return None


def is_a(node: Any, *types: str) -> bool:
    """Whether a node is of one of these types of the standard."""
    return node.op_type in types and node.domain in STANDARD


def label(node: Any) -> str:
    """Its name; of a node without one, its first output."""
    return str(node.name or node.output[0])


def _number(tensor: Any) -> float | None:
    from onnx import numpy_helper

    if tensor.data_location == 1:  # beside the model, where no scalar is put
        return None
    return float(numpy_helper.to_array(tensor).ravel()[0])
