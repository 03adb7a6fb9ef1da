"""Replaces what a device refuses or cannot compute by operators that it takes, with equal results.

The row of a target says which of these rewrites its provider needs (`rewrites`); so far these are
limits of the HTP, the processor behind Qualcomm's NPU.

Pools whose window exceeds their input become means. A transpose of more than five dimensions
between two reshapes becomes several of four dimensions, each of which swaps two neighbouring blocks
of dimensions. Biases that share their tensor with an operand get a tensor of their own. Additions
of zeros and multiplications by ones go: the HTP leaves them out, and with them the Relu that the
quantizer has made part of them. Tensors without elements are not joined to others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

_MOST_DIMENSIONS = 5
_BIASED = (
    "Gemm", "Conv", "ConvTranspose", "LayerNormalization", "InstanceNormalization",
)  # fmt: skip
"""Operators whose third input is a bias."""
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""Operator -> the operand that changes nothing."""
_SYMMETRIC = ("Add", "Mul")


def rewrite(model: Any, wanted: Collection[str]) -> dict[str, int]:
    """Rewrite a graph whose tensors have known shapes; returns how many operators each has changed,
    without those that have changed none."""
    shapes = _shapes(model)
    steps = {
        "empties": _drop_empty,
        "pools": _widen_pools,
        "neutral": _drop_neutral,
        "biases": _set_biases_apart,
        "transposes": _lower,
    }
    changed = {name: step(model, shapes) for name, step in steps.items() if name in wanted}
    return {name: count for name, count in changed.items() if count}


def _widen_pools(model: Any, shapes: dict[str, list[int]]) -> int:
    """Take the mean of the whole input where a pool is larger than that."""
    pools = [node for node in model.graph.node if _too_large(node, shapes)]
    for node in pools:
        node.op_type = "GlobalAveragePool"
        del node.attribute[:]
    return len(pools)


def biases_of_several(model: Any) -> set[str]:
    """The biases of layer normalizations that see more than one batch.

    The HTP normalizes several batches rightly only if the bias has the type of activations.
    """
    shapes = _shapes(model)
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        node.input[2]
        for node in model.graph.node
        if _several(node, shapes) and len(node.input) > 2 and node.input[2] in weights
    }


def _shapes(model: Any) -> dict[str, list[int]]:
    return {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.value_info)
    }


def _drop_neutral(model: Any, shapes: Mapping[str, list[int]]) -> int:
    """Drop the operators that return an operand as it is."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    results = {value.name for value in model.graph.output}
    dropped = 0
    for node in list(model.graph.node):
        kept = None if node.output[0] in results else _unchanged(node, weights, shapes)
        if kept is None:
            continue
        _bypass(model.graph, node, kept)
        dropped += 1
    return dropped


def _bypass(graph: Any, node: Any, kept: str) -> None:
    """Remove an operator; those that read its result read this tensor instead."""
    for user in graph.node:
        for place, name in enumerate(user.input):
            if name == node.output[0]:
                user.input[place] = kept
    graph.node.remove(node)


def _drop_empty(model: Any, _shapes: Mapping[str, list[int]]) -> int:
    """Join no tensors without elements, such as the rest that a rotary embedding does not turn."""
    graph = model.graph
    empty = {
        value.name
        for value in graph.value_info
        for dim in value.type.tensor_type.shape.dim
        if dim.HasField("dim_value") and not dim.dim_value
    }
    results = {value.name for value in graph.output}
    dropped = 0
    for node in [node for node in graph.node if node.op_type == "Concat"]:
        filled = [name for name in node.input if name not in empty]
        if not filled or len(filled) == len(node.input):
            continue
        if len(filled) == 1 and node.output[0] not in results:
            _bypass(graph, node, filled[0])
        else:
            node.input[:] = filled
        dropped += 1
    uses = Counter(name for node in graph.node for name in node.input)
    for node in reversed(list(graph.node)) if dropped else ():
        if empty.issuperset(node.output) and not any(uses[name] for name in node.output):
            uses.subtract(node.input)
            graph.node.remove(node)
    return dropped


def _unchanged(
    node: Any, weights: Mapping[str, Any], shapes: Mapping[str, list[int]]
) -> str | None:
    """The operand that an operator returns as it is."""
    neutral = _NEUTRAL.get(node.op_type)
    if neutral is None:
        return None
    pairs = [tuple(node.input)]
    if node.op_type in _SYMMETRIC:
        pairs.append(tuple(reversed(node.input)))
    for kept, other in pairs:
        if other in weights and _fills(weights[other], neutral, shapes.get(kept, [])):
            return str(kept)
    return None


def _fills(operand: Any, value: int, dims: Sequence[int]) -> bool:
    """Whether an operand holds nothing but a value, and does not enlarge these dimensions."""
    from onnx import external_data_helper, numpy_helper

    own = list(operand.dims)
    fits = len(own) <= len(dims) and all(
        one in (1, other) for one, other in zip(reversed(own), reversed(dims), strict=False)
    )
    if not fits or external_data_helper.uses_external_data(operand):
        return False
    return bool((numpy_helper.to_array(operand) == value).all())


def _set_biases_apart(model: Any, shapes: dict[str, list[int]]) -> int:
    """Give a bias a tensor of its own if another operator computes with the same one.

    Equal tensors are one in an export. Where zeros are a bias and also an operand of Add, they
    would get the type of activations, with which the HTP normalizes one batch wrongly that a
    convolution reads; several batches it normalizes rightly with that type alone.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    biases = [
        (node, node.input[2])
        for node in model.graph.node
        if node.op_type in _BIASED and len(node.input) > 2 and node.input[2] in weights
    ]
    alone = [pair for pair in biases if not _several(pair[0], shapes)]
    uses = Counter(name for node in model.graph.node for name in node.input)
    uses.subtract(name for _node, name in biases)
    shared = [(node, name) for node, name in alone if uses[name]]
    for node, name in shared:
        own = f"{name}/{node.name}"
        model.graph.initializer.add().CopyFrom(weights[name])
        model.graph.initializer[-1].name = own
        node.input[2] = own
    return len(shared)


def _several(node: Any, shapes: dict[str, list[int]]) -> bool:
    """Whether a layer normalization sees more than one batch."""
    dims = shapes.get(node.input[0], [])
    return node.op_type == "LayerNormalization" and len(dims) == 3 and dims[0] > 1


def _too_large(node: Any, shapes: dict[str, list[int]]) -> bool:
    """Whether a pool's window is larger than its input, so that its mean covers only the input."""
    from onnx import helper

    if node.op_type != "AveragePool" or node.input[0] not in shapes:
        return False
    given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    sizes, kernel = shapes[node.input[0]][2:], given["kernel_shape"]
    return not any(given.get("pads", ())) and all(
        0 < size < most for size, most in zip(sizes, kernel, strict=True)
    )


def _lower(model: Any, shapes: dict[str, list[int]]) -> int:
    """Rewrite the transposes between reshapes that have too many dimensions."""
    from onnx import numpy_helper

    users = Counter(name for node in model.graph.node for name in node.input)
    users.update(value.name for value in model.graph.output)
    makers = {node.output[0]: node for node in model.graph.node if node.op_type == "Reshape"}
    takers = {node.input[0]: node for node in model.graph.node if node.op_type == "Reshape"}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    count = 0
    for node in [node for node in model.graph.node if node.op_type == "Transpose"]:
        before, after = makers.get(node.input[0]), takers.get(node.output[0])
        dims = shapes.get(node.input[0], [])
        if before is None or after is None or after.input[1] not in weights:
            continue
        copied = not numpy_helper.to_array(weights[after.input[1]]).all()  # a 0 copies its place
        alone = users[node.input[0]] == users[node.output[0]] == 1
        if alone and not copied and all(dims) and _large(dims):
            _replace(model.graph, before, node, after, dims)
            count += 1
    return count


def _large(dims: Sequence[int]) -> bool:
    return sum(dim != 1 for dim in dims) > _MOST_DIMENSIONS


def _replace(graph: Any, before: Any, node: Any, after: Any, dims: list[int]) -> None:
    """Put the exchanges in the place of a transpose and of the reshape before it."""
    import numpy as np
    from onnx import helper, numpy_helper

    order = next(list(item.ints) for item in node.attribute if item.name == "perm")
    made, name = [], before.input[0]
    for number, four in enumerate(swaps(dims, order)):
        stem = f"{node.name}/{number}"
        graph.initializer.append(numpy_helper.from_array(np.array(four, np.int64), f"{stem}/dims"))
        made.append(
            helper.make_node("Reshape", [name, f"{stem}/dims"], [f"{stem}/in"], f"{stem}/Reshape")
        )
        made.append(
            helper.make_node(
                "Transpose", [f"{stem}/in"], [f"{stem}/out"], f"{stem}/Transpose", perm=[0, 2, 1, 3]
            )
        )
        name = f"{stem}/out"
    after.input[0] = name
    place = list(graph.node).index(node)
    for item in reversed(made):
        graph.node.insert(place, item)
    graph.node.remove(before)
    graph.node.remove(node)


def swaps(dims: Sequence[int], order: Sequence[int]) -> Iterator[list[int]]:
    """Shapes of four dimensions; exchanging the middle two of each, one after the other, brings
    `dims` into the order of a transpose."""
    left, sizes = list(range(len(dims))), list(dims)
    for place, wanted in enumerate(order):
        at = left.index(wanted)
        jumped = math.prod(sizes[place:at])
        if jumped != 1 and sizes[at] != 1:
            yield [math.prod(sizes[:place]), jumped, sizes[at], math.prod(sizes[at + 1 :])]
        left.insert(place, left.pop(at))
        sizes.insert(place, sizes.pop(at))
