"""Replaces transposes of weights by weights transposed once, in files: never all in memory.

Torch's exporter does this too when it folds constants, but keeps every result beside the
original until the export ends, which takes twice the size of the model.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from workers.optimum_engine import weight_only
from workers.sources import onnx_graph, weight_file


def fold(model: Any, folder: Path) -> int:
    """Replace each transposition of a matrix among the weights; returns how many there were."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    readers = Counter(
        name for one in onnx_graph.graphs(model) for node in one.node for name in node.input
    )
    outputs = {value.name for value in graph.output}
    found = [
        node
        for node in graph.node
        if node.op_type == "Transpose"
        and node.input[0] in weights
        and _swaps(node)
        and node.output[0] not in outputs
    ]
    for number, node in enumerate(found):
        tensor = weights[node.input[0]]
        _add(graph, tensor, node.output[0], folder, f"transposed-{number}")
        readers[tensor.name] -= 1
        if not readers[tensor.name]:
            graph.initializer.remove(tensor)
        graph.node.remove(node)
    return len(found)


def _swaps(node: Any) -> bool:
    """Whether it swaps the two axes of a matrix, which is also the default."""
    return all(list(item.ints) == [1, 0] for item in node.attribute if item.name == "perm")


def _add(graph: Any, tensor: Any, name: str, folder: Path, file: str) -> None:
    values = weight_file.values(tensor, folder).T
    rows, columns = tensor.dims
    made = graph.initializer.add(name=name, data_type=tensor.data_type, dims=[columns, rows])
    pieces = (values[part] for part in weight_only.parts(values))
    weight_file.write_apart(made, pieces, folder / file)
