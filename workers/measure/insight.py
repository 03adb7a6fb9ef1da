"""Facts about the graph of a model, from which a tuning decides what is worth trying.

Counts operators and open dimensions of a model file, and finds the candidates of passes, each with
the names of nodes as evidence. It runs in the host process that inspects models
(`workers.verify.checker`), where onnx is imported. What is known of a whole model, its session and
its trace, is put together in `flows.tune.insight`.

A candidate is a place that a pass could rewrite, by the names of `matrix.vocabulary`: a hint about
what to try, no promise that the pass takes it. ONNX Runtime's own patterns are stricter, and differ
from version to version; for its CPU they are others than for the providers that are tuned.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workers.sources import onnx_graph
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


EVIDENCE = 3
"""Names of nodes that are told of each."""
ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip", "HardSigmoid", "Gelu", "Erf")
_BETWEEN = ("Add", "Mul", "Div", "Where", "Cast", "Dropout", "Reshape", "Transpose", "Sub")
"""What stands between the products and the Softmax of an attention."""
_FAR = 4
_HIGH = 4
"""More dimensions than an NPU likes."""

Found = Iterator[Any]


def read_facts(path: Path) -> dict[str, Any]:
    """For `flows.tune.insight`. Raises whatever onnx raises at a file that is no model."""
    model = onnx_graph.load_to_inspect(path)
    operators = onnx_graph.operators(model)
    del operators["Constant"]
    return {
        "opset": onnx_graph.opset(model),
        "nodes": operators.total(),
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "dynamic": _open_dimensions(model),
        "candidates": candidates(View(model)),
    }


def _open_dimensions(model: Any) -> list[str]:
    """`input_ids[1] sequence`, one for each dimension of an input without a size."""
    return [
        f"{value.name}[{place}] {dim or ''}".rstrip()
        for value in onnx_graph.inputs(model)
        for place, dim in enumerate(onnx_graph.dims(value))
        if not isinstance(dim, int)
    ]


def candidates(view: View) -> list[dict[str, Any]]:
    """Each with its number of places and the names of the first nodes, most places first."""
    found = []
    for name, detect in DETECTORS.items():
        nodes = list(detect(view))
        if len(nodes) > LEAST.get(name, 0):
            shown = [label(node) for node in nodes[:EVIDENCE]]
            found.append({"name": name, "count": len(nodes), "evidence": shown})
    return sorted(found, key=lambda one: (-int(one["count"]), str(one["name"])))


def _gelu(view: View, curve: str = "Erf") -> Found:
    for node in view.of(curve):
        if any(_near(view.scalar(add), 1.0) for add in view.users(node, "Add")):
            yield node


def _quick_gelu(view: View) -> Found:
    for node in view.of("Sigmoid"):
        scaled = view.maker(node.input[0], "Mul")
        if scaled is not None and _near(view.scalar(scaled), 1.702) and view.users(node, "Mul"):
            yield node


def _bias_gelu(view: View) -> Found:
    for node in (*_gelu(view), *view.of("Gelu")):
        source = node if is_a(node, "Gelu") else view.maker(node.input[0], "Div", "Mul")
        if source is not None:
            yield from filter(view.with_constant, view.makers(source, "Add"))


def _layer_norm(view: View, *, centered: bool = True) -> Found:
    """Divisions by a root of a mean of squares, with the mean taken off before or not."""
    for root in view.of("Sqrt"):
        add = view.maker(root.input[0], "Add")
        mean = next(iter(view.makers(add, "ReduceMean")), None) if add is not None else None
        square = view.maker(mean.input[0], "Pow", "Mul") if mean is not None else None
        if square is None:
            continue
        middle = view.maker(square.input[0], "Sub")
        if (middle is not None and bool(view.makers(middle, "ReduceMean"))) == centered:
            yield middle if centered else square


def _skip_layer_norm(view: View) -> Found:
    for node in (*view.of("LayerNormalization"), *_layer_norm(view)):
        add = view.maker(node.input[0], "Add")
        if add is not None and not view.with_constant(add):
            yield add


def _attention(view: View) -> Found:
    for node in view.of("Softmax"):
        if _reaches(view, node, back=True) and _reaches(view, node, back=False):
            yield node


def _reaches(view: View, node: Any, *, back: bool) -> bool:
    """Whether a product is not far from a node."""
    at = [node]
    for _step in range(_FAR):
        near = [one for here in at for one in _next(view, here, back=back)]
        if any(is_a(one, "MatMul") for one in near):
            return True
        at = [one for one in near if is_a(one, *_BETWEEN)]
    return False


def _next(view: View, node: Any, *, back: bool) -> list[Any]:
    types = (*_BETWEEN, "MatMul")
    return view.makers(node, *types) if back else view.users(node, *types)


def _made_by(view: View, kind: str, maker: str) -> Found:
    """Nodes whose first input comes from a node of that type."""
    return (node for node in view.of(kind) if view.maker(node.input[0], maker) is not None)


def _transposed(view: View, kind: str) -> Found:
    return (node for node in view.of(kind) if view.makers(node, "Transpose"))


def _scaled(view: View) -> Found:
    for node in view.of("MatMul"):
        around = [*view.makers(node, "Mul", "Div"), *view.users(node, "Mul", "Div")]
        if any(view.scalar(one) is not None for one in around):
            yield node


def _after(
    view: View, types: tuple[str, ...], after: tuple[str, ...], constant: bool | None = None
) -> Found:
    """Nodes whose one user is of those types; `constant`: whether it has an input of the model."""
    for node in view.of(*types):
        user = view.only_user(node, *after)
        if user is not None and constant in (None, view.with_constant(user)):
            yield node


def _conv_add_activation(view: View) -> Found:
    for node in _after(view, ("Conv",), ("Add",), constant=False):
        add = view.only_user(node, "Add")
        if add is not None and view.only_user(add, *ACTIVATIONS) is not None:
            yield node


def _high_dimensions(view: View) -> Found:
    for node in view.of("Transpose"):
        order = attributes(node).get("perm", ())
        if len(order) > _HIGH and view.maker(node.input[0], "Reshape") is not None:
            yield from view.users(node, "Reshape")[:1]


def _near(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value - wanted) < 0.01


LEAST = {"slice_elimination": 3, "expand_elimination": 2, "transpose_optimizer": 10}
"""How many are too few to be worth a trial."""
_CONV, _MATMUL, _GEMM, _ADD = ("Conv",), ("MatMul",), ("Gemm",), ("Add",)
DETECTORS: Mapping[str, Callable[[View], Found]] = {
    "gelu": _gelu,
    "fast_gelu": lambda view: _gelu(view, "Tanh"),
    "quick_gelu": _quick_gelu,
    "bias_gelu": _bias_gelu,
    "layer_norm": _layer_norm,
    "simplified_layer_norm": lambda view: _layer_norm(view, centered=False),
    "skip_layer_norm": _skip_layer_norm,
    "attention": _attention,
    "bias_softmax": lambda view: _made_by(view, "Softmax", "Add"),
    "matmul_add": lambda view: _after(view, _MATMUL, _ADD, constant=True),
    "matmul_activation": lambda view: _after(view, _MATMUL, ACTIVATIONS),
    "matmul_transpose": lambda view: _transposed(view, "MatMul"),
    "matmul_scale": _scaled,
    "conv_bn": lambda view: _after(view, _CONV, ("BatchNormalization",)),
    "conv_add": lambda view: _after(view, _CONV, _ADD, constant=True),
    "conv_mul": lambda view: _after(view, _CONV, ("Mul",), constant=True),
    "conv_activation": lambda view: _after(view, _CONV, ACTIVATIONS),
    "conv_add_activation": _conv_add_activation,
    "pad": lambda view: _after(view, ("Pad",), ("Conv", "MaxPool", "AveragePool")),
    "gemm_activation": lambda view: _after(view, _GEMM, ACTIVATIONS),
    "gemm_sum": lambda view: _after(view, _GEMM, _ADD),
    "gemm_transpose": lambda view: _transposed(view, "Gemm"),
    "slice_elimination": lambda view: iter(view.of("Slice")),
    "expand_elimination": lambda view: iter(view.of("Expand")),
    "unsqueeze_elimination": lambda view: (
        node for node in view.of("Unsqueeze") if view.constant(node.input[0])
    ),
    "concat_slice_elimination": lambda view: _made_by(view, "Slice", "Concat"),
    "transpose_optimizer": lambda view: iter(view.of("Transpose")),
    "highdimRTR_lowdimRTR": _high_dimensions,
}
