"""From the operators of a source back to the nodes of the ONNX graph.

A source names some of the nodes that it executes; the others were fused into these. A node that
nobody names belongs to the operator of the node that uses it, the quantization of an output to the
one that makes it. What can be computed without the inputs is folded when a model is opened, and
belongs to nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from workers.measure.trace.operators import Series
from workers.measure.trace.result import OnnxNode
from workers.sources import onnx_graph

_HEAVY = (
    "Conv", "ConvTranspose", "MatMul", "Gemm", "ConvInteger", "MatMulInteger", "QLinearConv",
    "QLinearMatMul", "LSTM", "GRU", "RNN", "Attention", "Einsum",
)  # fmt: skip
"""An operator that holds one of these is called after it."""
_SUFFIXES = ("_nchwc", "_nhwc", "/MatMulAddFusion", "/MatMulAddFusion/MatMul", "_quant", "_token")
"""What runtimes append to the names of nodes that they have changed."""
_MOST_VALUES = 16


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an ONNX graph, as `workers.verify.checker` reads it."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def onnx(self) -> OnnxNode:
        """As results keep it."""
        return OnnxNode(self.label, self.op_type)

    @property
    def label(self) -> str:
        """Its name; without one, its first output."""
        return self.name or next(filter(None, self.outputs), "")


@dataclass(frozen=True)
class Graph:
    """The nodes of a graph, in order."""

    nodes: tuple[Node, ...]
    fixed: frozenset[str] = frozenset()
    """Tensors that need no input: weights and constants."""

    @cached_property
    def places(self) -> dict[str, int]:
        """By name of a node or of a tensor that it makes; names that several nodes have are out."""
        found: dict[str, int] = {}
        twice: set[str] = set()
        for place, node in enumerate(self.nodes):
            if node.name in found:
                twice.add(node.name)
            found[node.name] = place
        for name in (*twice, ""):
            found.pop(name, None)
        for place, node in enumerate(self.nodes):
            for output in node.outputs:
                found.setdefault(output, place)
        return found

    @cached_property
    def folded(self) -> frozenset[int]:
        """Nodes that need no input of the graph."""
        known, found = set(self.fixed), set()
        for place, node in enumerate(self.nodes):
            if all(name in known for name in node.inputs if name):
                known.update(node.outputs)
                found.add(place)
        return frozenset(found)

    def find(self, name: str) -> int | None:
        """The node that a source means."""
        if name in self.places:
            return self.places[name]
        for suffix in _SUFFIXES:
            short = name.removesuffix(suffix)
            if short != name and short in self.places:
                return self.places[short]
        return None

    def owners(self, named: Mapping[int, int]) -> dict[int, int]:
        """Every node with the operator that holds it; `named`: the nodes that operators name."""
        users: defaultdict[str, list[int]] = defaultdict(list)
        for place, node in enumerate(self.nodes):
            for name in node.inputs:
                users[name].append(place)
        found = dict(named)
        order = range(len(self.nodes))
        for place in order:
            node = self.nodes[place]
            if place not in found and node.op_type == "QuantizeLinear":
                maker = self.places.get(node.inputs[0], -1)
                if maker in named:
                    found[place] = named[maker]
        # First by what uses a node; what is left makes outputs of the graph.
        for places, back in ((reversed(order), False), (order, True)):
            for place in places:
                if place in found or place in self.folded:
                    continue
                node = self.nodes[place]
                if back:
                    beside = [self.places.get(name, -1) for name in node.inputs]
                else:
                    beside = [user for name in node.outputs for user in users[name]]
                if owners := [found[one] for one in beside if one in found]:
                    found[place] = owners[0]
        return found


def put_names(graph: Graph, series: Sequence[Series]) -> None:
    """Add the facts of the ONNX graph to each series."""
    named: dict[int, int] = {}
    first: dict[int, int] = {}
    for at, one in enumerate(series):
        for name in (one.path, *one.held):
            place = graph.find(name)
            if place is not None:
                named.setdefault(place, at)
                first.setdefault(at, place)
    held: defaultdict[int, list[int]] = defaultdict(list)
    for place, at in sorted(graph.owners(named).items()):
        held[at].append(place)
    for at, places in held.items():
        nodes = [graph.nodes[place] for place in places]
        anchor = graph.nodes[first[at]]
        series[at].facts |= _facts(_principal(nodes, anchor, series[at].facts), nodes)


def _principal(nodes: Iterable[Node], anchor: Node, facts: Mapping[str, Any]) -> Node:
    """The node that an operator is called after."""
    wanted = (facts.get("op_type"), *_HEAVY)
    if anchor.op_type in wanted:
        return anchor
    return next((node for kind in wanted for node in nodes if node.op_type == kind), anchor)


def _facts(principal: Node, nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "name": principal.label,
        "onnx_op_type": principal.op_type,
        "onnx_inputs": principal.inputs,
        "onnx_outputs": principal.outputs,
        "onnx_attributes": principal.attributes or None,
        "onnx_nodes": tuple(node.onnx for node in nodes),
    }


def put_outputs(optimized: Graph, series: Sequence[Series]) -> None:
    """Put the tensors that each series makes, from the graph as a runtime executes it.

    Nodes of one name and type come in the same order in the file as in execution.
    """
    makes: defaultdict[tuple[str, str], list[tuple[str, ...]]] = defaultdict(list)
    for node in optimized.nodes:
        makes[node.name, node.op_type].append(node.outputs)
    for one in sorted(series, key=lambda one: one.order):
        queue = makes.get((one.path, one.facts.get("op_type") or ""))
        if queue:
            one.held = queue.pop(0)


def read_graph(path: Path) -> dict[str, Any]:
    """The nodes of an ONNX file, in a host process: only there onnx is imported.

    Nodes of inner graphs belong to the node that has them."""
    graph = onnx_graph.load_to_inspect(path).graph
    constants = [node for node in graph.node if node.op_type == "Constant"]
    return {
        "nodes": [_node(node) for node in graph.node if node.op_type != "Constant"],
        "fixed": [
            *(tensor.name for tensor in graph.initializer),
            *(name for node in constants for name in node.output),
        ],
    }


def _node(node: Any) -> Mapping[str, Any]:
    return {
        "name": node.name,
        "op_type": node.op_type,
        "inputs": list(node.input),
        "outputs": list(node.output),
        "attributes": {
            item.name: value for item in node.attribute if (value := _value(item)) is not None
        },
    }


def _value(item: Any) -> Any:
    """Short plain values; tensors and graphs are left out."""
    from onnx import AttributeProto, helper

    if item.type == AttributeProto.STRING:
        return item.s.decode("utf-8", "replace")[:200]
    if item.type in {AttributeProto.INT, AttributeProto.FLOAT}:
        return helper.get_attribute_value(item)
    if item.type in {AttributeProto.INTS, AttributeProto.FLOATS}:
        return list(helper.get_attribute_value(item))[:_MOST_VALUES]
    return None
