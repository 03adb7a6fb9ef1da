"""ONNX graphs in memory, inner graphs included: their contents and the order of their nodes."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from workers.composition import Ports
from workers.sources.errors import export_error, quantize_error

STANDARD = {"", "ai.onnx"}
"""The names of the standard operator set."""
MOST_NODES = 200_000
FOUR_BITS = {21, 22, 23}
"""ONNX's numbers of the types with two values in a byte."""
_QUANTIZED = (
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantize", "QLinear", "QGemm", "QAttention",
)  # fmt: skip
_CONTRIB = ("com.microsoft", "com.microsoft.nchwc", "com.microsoft.experimental")


def load(file: Path) -> Any:
    """The model in a file without the weights that lie beside it."""
    import onnx

    return onnx.load(str(file), load_external_data=False)


def load_to_inspect(file: Path) -> Any:
    """The same. Raises `ValueError` for a graph that would take too long to look at."""
    model = load(file)
    count = len(model.graph.node)
    if count > MOST_NODES:
        raise ValueError(f"{file.name} has {count} nodes, and {MOST_NODES} are allowed")
    return model


CONTEXT, CONTEXT_DOMAIN = "EPContext", "com.microsoft"
"""The operator of what an execution provider has compiled."""


def graphs(model: Any) -> Iterator[Any]:
    """The main graph and every graph inside its nodes (If, Loop, Scan)."""
    return _within([model.graph])


def _within(pending: list[Any]) -> Iterator[Any]:
    """Graphs or functions, and every graph inside their nodes."""
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g)
                pending.extend(attribute.graphs)


def _everything(model: Any) -> list[Any]:
    """All that a model file can compute with: its graph, its functions, its training."""
    training = (
        graph for info in model.training_info for graph in (info.initialization, info.algorithm)
    )
    return [model.graph, *model.functions, *training]


def nodes(model: Any) -> Iterator[Any]:
    """Every node of a model file, those in functions too."""
    for graph in _within(_everything(model)):
        yield from graph.node


def is_context(node: Any) -> bool:
    """Whether a node holds or names what was compiled."""
    return (node.op_type, node.domain) == (CONTEXT, CONTEXT_DOMAIN)


def tensors(model: Any) -> Iterator[Any]:
    """Every weight and constant of a model."""
    for graph in graphs(model):
        yield from _tensors_of(graph)


def hidden_tensors(model: Any) -> Iterator[Any]:
    """The tensors of a model file that are no weights of its graph: those of functions and of
    training, and the parts of sparse ones."""
    for graph in _within(_everything(model)[1:]):
        yield from _tensors_of(graph)
    for graph in _within(_everything(model)):
        sparse = list(getattr(graph, "sparse_initializer", ()))
        for attribute in (one for node in graph.node for one in node.attribute):
            if attribute.HasField("sparse_tensor"):
                sparse.append(attribute.sparse_tensor)
            sparse.extend(attribute.sparse_tensors)
        for one in sparse:
            yield from (one.values, one.indices)


def all_tensors(model: Any) -> Iterator[Any]:
    """Every tensor of a model file: each can name a file that holds its bytes."""
    yield from tensors(model)
    yield from hidden_tensors(model)


def _tensors_of(graph: Any) -> Iterator[Any]:
    yield from getattr(graph, "initializer", ())  # a function has none
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def inputs(model: Any) -> list[Any]:
    """The inputs of a graph, without the weights that are listed as inputs."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def ports(model: Any) -> Ports:
    """The names of the inputs and outputs of a graph."""
    return (
        tuple(value.name for value in inputs(model)),
        tuple(value.name for value in model.graph.output),
    )


def dims(value: Any) -> list[int | str | None]:
    """The dimensions of an input or output: a size, a name, or None."""
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in value.type.tensor_type.shape.dim
    ]


def is_open(value: Any) -> bool:
    """Whether an input or output has a dimension without a size."""
    return any(not isinstance(dim, int) for dim in dims(value))


def attributes(node: Any) -> dict[str, Any]:
    """The values of a node's attributes by name."""
    from onnx import helper

    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


@dataclass(frozen=True, slots=True)
class External:
    """Where the bytes of a tensor are that its model file does not hold."""

    location: str
    """A path that begins at the folder of the model, as the file says it: not checked."""
    offset: int
    length: int
    """0: the file says none."""


def external(tensor: Any) -> External | None:
    """Where the bytes of a tensor are; None: in the model file."""
    if tensor.data_location != 1:
        return None
    told = {item.key: item.value for item in tensor.external_data}
    numbers = (int(told.get(name) or 0) for name in ("offset", "length"))
    return External(str(told.get("location", "")), *numbers)


def beside(tensor: Any) -> External | None:
    """The same; raises for bytes that are not in a file of the model's own folder."""
    where = external(tensor)
    if where and (set(where.location) & set("/\\:") or where.location in {"", ".", ".."}):
        raise export_error(f"the weights of '{tensor.name}' are outside the model's folder")
    return where


def tensor_names(model: Any) -> set[str]:
    """Every name of a tensor in a graph."""
    names = {tensor.name for graph in graphs(model) for tensor in graph.initializer}
    return names | {name for graph in graphs(model) for node in graph.node for name in node.output}


def weight_bytes(model: Any) -> int:
    """Bytes of all initializers and constants, roughly the size of the file."""
    return sum(map(tensor_bytes, tensors(model)))


def tensor_bytes(tensor: Any) -> int:
    """The bytes that a tensor's values take."""
    # Not ByteSize(): protobuf refuses to measure anything beyond 2 GiB.
    from onnx import helper

    count = math.prod(tensor.dims)
    if tensor.data_type in FOUR_BITS:
        return int(-(-count // 2))
    return int(count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def opset(model: Any) -> int:
    """The version of the standard operator set."""
    return next(int(item.version) for item in model.opset_import if item.domain in STANDARD)


def operators(model: Any) -> Counter[str]:
    """The number of nodes of each type; types of other domains have the domain as prefix."""
    counts: Counter[str] = Counter()
    for graph in graphs(model):
        for node in graph.node:
            standard = node.domain in STANDARD
            counts[node.op_type if standard else f"{node.domain}:{node.op_type}"] += 1
    return counts


def contrib(model: Any) -> Counter[str]:
    """The operators that only ONNX Runtime knows."""
    return Counter(
        {name: n for name, n in operators(model).items() if name.split(":")[0] in _CONTRIB}
    )


def quantized(model: Any) -> bool:
    """Whether a graph computes with integers in place of floats."""
    return any(
        name.startswith(_QUANTIZED) or name.endswith("Integer")
        for name in (full.rpartition(":")[2] for full in operators(model))
    )


def unknown(model: Any) -> list[str]:
    """Operators in the standard domain that the standard does not define at this opset.

    ONNX Runtime keeps a few of its own there, unknown to other runtimes and to the checker.
    """
    from onnx import defs

    version = opset(model)
    names = {
        node.op_type for graph in graphs(model) for node in graph.node if node.domain in STANDARD
    }
    return sorted(name for name in names if not _in_standard(defs, name, version))


def _in_standard(defs: Any, name: str, version: int) -> bool:
    try:
        return not defs.get_schema(name, max_inclusive_version=version, domain="").deprecated
    except defs.SchemaError:
        return False


def facts(model: Any) -> dict[str, Any]:
    """The facts that every stage reports about its graph."""
    counts = operators(model)
    return {
        "opset": opset(model),
        "ir": int(model.ir_version),
        "nodes": counts.total(),
        "contrib_nodes": contrib(model).total(),
    }


def sort(graph: Any) -> None:
    """Put every node after those that make its inputs, which ONNX demands.

    ONNX Runtime's tools append what they add at the end; its own loader accepts that, others do
    not. Nodes that are in order keep their places.
    """
    nodes = list(graph.node)
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for index, node in enumerate(nodes):
        sorter.add(index, *(maker[name] for name in _inputs_of(node) if name in maker))
    try:
        sorter.prepare()
    except CycleError:
        raise quantize_error("the quantized graph has a cycle") from None
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heapq.heappush(ready, index)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    if order != sorted(order):
        sorted_nodes = [nodes[index] for index in order]
        del graph.node[:]
        graph.node.extend(sorted_nodes)


def _inputs_of(node: Any) -> Iterator[str]:
    """The inputs of a node, including those that its subgraphs take from the outer graph."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        inner = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
        for graph in inner:
            for part in graph.node:
                yield from _inputs_of(part)
