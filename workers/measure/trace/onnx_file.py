"""Reads the nodes of an ONNX file, in a host process: only there onnx is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_NODES = 200_000
_MOST_VALUES = 16


def read_graph(path: Path) -> dict[str, Any]:
    """For `graph.Graph.from_json`. Nodes of inner graphs belong to the node that has them."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    if len(graph.node) > MOST_NODES:
        raise ValueError(f"{path.name} has {len(graph.node)} nodes, and {MOST_NODES} are allowed")
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
