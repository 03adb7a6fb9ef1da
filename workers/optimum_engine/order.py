"""The order of a graph's nodes: ONNX wants every tensor made before it is used.

ONNX Runtime's tools append what they add at the end, and its loader does not mind; others do.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from workers.sources.errors import quantize_error


def sort(graph: Any) -> None:
    """Put the nodes of a graph in an order that ONNX accepts; what is in order keeps its place."""
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    users: defaultdict[int, list[int]] = defaultdict(list)
    waits = []
    for index, node in enumerate(nodes):
        before = {maker[name] for name in _used(node) if name in maker}
        waits.append(len(before))
        for other in before:
            users[other].append(index)
    ready = [index for index, count in enumerate(waits) if not count]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        raise quantize_error("the quantized graph has a cycle")
    if order != sorted(order):
        sorted_nodes = [nodes[index] for index in order]
        del graph.node[:]
        graph.node.extend(sorted_nodes)


def _used(node: Any) -> Iterator[str]:
    """What a node takes, its subgraphs' view of the outer graph included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        inner = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
        for graph in inner:
            for part in graph.node:
                yield from _used(part)
