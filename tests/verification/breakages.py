"""Ways to break a graph, each applied to exported models and judged by the gate and by the
gate that was there before it: raw cosines, on three samples of noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Break = Callable[[ModelProto], bool]
"""Breaks a model; False: it has nothing of that kind."""
RANDOM = 7


def initializers(model: ModelProto) -> dict[str, TensorProto]:
    return {one.name: one for one in model.graph.initializer}


def put(tensor: TensorProto, value: Any) -> None:
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(value, array.dtype), tensor.name))


def nodes(model: ModelProto, *kinds: str) -> list[NodeProto]:
    return [one for one in model.graph.node if one.op_type in kinds]


def weights(model: ModelProto) -> list[TensorProto]:
    """The weights that are multiplied by, in order."""
    known = initializers(model)
    found = []
    for node in nodes(model, "MatMul", "Gemm", "Conv"):
        name = node.input[1]
        if name in known and math.prod(known[name].dims) > 64:
            found.append(known[name])
    return found


def alive(model: ModelProto) -> None:
    """Give biases and gains values of their own: those of random weights are zeros and ones."""
    random = np.random.default_rng(RANDOM)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 1 and tensor.dims[0] > 1:
            value = numpy_helper.to_array(tensor)
            if np.ptp(value) == 0:
                put(tensor, value + 0.4 * random.standard_normal(value.shape))


def weight(change: Callable[[Any], Any], place: float = 0.5) -> Break:
    """Change a weight in the middle of the graph."""

    def broken(model: ModelProto) -> bool:
        found = weights(model)
        tensor = found[int(len(found) * place)]
        put(tensor, change(numpy_helper.to_array(tensor)))
        return True

    return broken


def noise(value: Any) -> Any:
    return np.random.default_rng(RANDOM).standard_normal(value.shape) * value.std()


def block(model: ModelProto) -> bool:
    """All weights of the middle third are zero."""
    found = weights(model)
    for tensor in found[len(found) // 3 : 2 * len(found) // 3 + 1]:
        put(tensor, 0 * numpy_helper.to_array(tensor))
    return True


def transposed(model: ModelProto) -> bool:
    square = [one for one in weights(model) if len(one.dims) == 2 and one.dims[0] == one.dims[1]]
    if square:
        put(square[0], numpy_helper.to_array(square[0]).T)
    return bool(square)


def half_of_heads(model: ModelProto) -> bool:
    """The first half of the values of an attention: half of its heads."""
    known = initializers(model)
    for node in nodes(model, "MatMul"):
        if "value" in node.name.lower() and node.input[1] in known:
            value = numpy_helper.to_array(known[node.input[1]]).copy()
            value[:, : value.shape[1] // 2] = 0
            put(known[node.input[1]], value)
            return True
    return False


def no_biases(model: ModelProto) -> bool:
    known = initializers(model)
    found = [name for node in nodes(model, "Add") for name in node.input if name in known]
    found += [node.input[2] for node in nodes(model, "Gemm", "Conv") if len(node.input) > 2]
    vectors = [known[name] for name in found if name in known and len(known[name].dims) == 1]
    for tensor in vectors:
        put(tensor, 0 * numpy_helper.to_array(tensor))
    return bool(vectors)


def no_gain(model: ModelProto) -> bool:
    known = initializers(model)
    found = [one for one in nodes(model, "LayerNormalization") if one.input[1] in known]
    for node in found:
        put(known[node.input[1]], np.ones(tuple(known[node.input[1]].dims)))
    return bool(found)


def wide_epsilon(model: ModelProto) -> bool:
    found = nodes(model, "LayerNormalization")
    for node in found:
        for item in node.attribute:
            if item.name == "epsilon":
                item.f = 10.0
    return bool(found)


def relu_for_gelu(model: ModelProto) -> bool:
    """x (1 + sign x) / 2 in place of x (1 + erf x) / 2, also where it is fused with a bias."""
    found = nodes(model, "Erf", "Gelu", "BiasGelu")
    for node in found:
        fused = node.op_type == "BiasGelu"
        kind = {"Erf": "Sign", "Gelu": "Relu", "BiasGelu": "Add"}[node.op_type]
        node.op_type, node.domain = kind, ""
        del node.attribute[:]
        if fused:
            name, place = node.output[0], list(model.graph.node).index(node)
            node.output[0] = f"{name}/sum"
            model.graph.node.insert(place + 1, helper.make_node("Relu", [node.output[0]], [name]))
    return bool(found)


def softmax_axis(model: ModelProto) -> bool:
    found = nodes(model, "Softmax")
    for node in found:
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("axis", 2))
    return bool(found)


def no_residual(model: ModelProto) -> bool:
    """One sum of two results has only the later one."""
    known = initializers(model)
    made = {name: at for at, node in enumerate(model.graph.node) for name in node.output}
    sums = [
        node
        for node in nodes(model, "Add")
        if all(name in made and name not in known for name in node.input)
    ]
    if len(sums) < 2:
        return False
    node = sums[len(sums) // 2]
    later = max(node.input, key=lambda name: made[name])
    node.op_type = "Identity"
    del node.input[:]
    node.input.append(later)
    return True


def replaced(model: ModelProto, name: str, made: Sequence[NodeProto], by: str) -> None:
    """Let everything that reads `name` read `by`, which these nodes make of it."""
    for node in model.graph.node:
        for at, given in enumerate(node.input):
            if given == name:
                node.input[at] = by
    for node in reversed(made):
        model.graph.node.insert(0, node)


def constant(model: ModelProto, name: str, value: Any) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def input_is(word: str, value: int) -> Break:
    """An integer input has one value everywhere."""

    def broken(model: ModelProto) -> bool:
        for item in model.graph.input:
            if word in item.name:
                zero = constant(model, "broken/zero", np.int64(0))
                one = constant(model, "broken/value", np.int64(value))
                made = [
                    helper.make_node("Mul", [item.name, zero], ["broken/none"]),
                    helper.make_node("Add", ["broken/none", one], ["broken/input"]),
                ]
                replaced(model, item.name, made, "broken/input")
                return True
        return False

    return broken


def clipped_input(model: ModelProto) -> bool:
    item = model.graph.input[0]
    if item.type.tensor_type.elem_type != TensorProto.FLOAT:
        return False
    low, high = (constant(model, f"broken/{one}", np.float32(one)) for one in (0, 1))
    made = [helper.make_node("Clip", [item.name, low, high], ["broken/input"])]
    replaced(model, item.name, made, "broken/input")
    return True


def table(word: str, change: Callable[[Any], Any]) -> Break:
    """Change a table of embeddings."""

    def broken(model: ModelProto) -> bool:
        for tensor in model.graph.initializer:
            value = numpy_helper.to_array(tensor)
            if word in tensor.name and value.ndim >= 2 and np.ptp(value) > 0:
                put(tensor, change(value))
                return True
        return False

    return broken


def after(change: Callable[[ModelProto, str, str], list[NodeProto]]) -> Break:
    """Change the first output after it was computed."""

    def broken(model: ModelProto) -> bool:
        name = model.graph.output[0].name
        for node in model.graph.node:
            for at, made in enumerate(node.output):
                if made == name:
                    node.output[at] = "broken/before"
            for at, given in enumerate(node.input):
                if given == name:
                    node.input[at] = "broken/before"
        model.graph.node.extend(change(model, "broken/before", name))
        return True

    return broken


def offset(model: ModelProto, before: str, name: str) -> list[NodeProto]:
    one = constant(model, "broken/offset", np.float32(0.5))
    return [helper.make_node("Add", [before, one], [name])]


def constant_output(model: ModelProto, before: str, name: str) -> list[NodeProto]:
    zero = constant(model, "broken/zero", np.float32(0))
    one = constant(model, "broken/value", np.float32(0.1))
    return [
        helper.make_node("Mul", [before, zero], ["broken/none"]),
        helper.make_node("Add", ["broken/none", one], [name]),
    ]


def cut(model: ModelProto, before: str, name: str) -> list[NodeProto]:
    """Without the last value of each row."""
    start, end, axis = (constant(model, f"broken/{key}", np.array([value], np.int64))
                        for key, value in (("start", 0), ("end", -1), ("axis", -1)))  # fmt: skip
    return [helper.make_node("Slice", [before, start, end, axis], [name])]


def reversed_rows(model: ModelProto, before: str, name: str) -> list[NodeProto]:
    start, end, axis, step = (
        constant(model, f"broken/{key}", np.array([value], np.int64))
        for key, value in (("start", -1), ("end", -(1 << 40)), ("axis", -1), ("step", -1))
    )
    return [helper.make_node("Slice", [before, start, end, axis, step], [name])]


def swapped(model: ModelProto) -> bool:
    """The first two outputs have each other's name."""
    if len(model.graph.output) < 2:
        return False
    first, second = (one.name for one in model.graph.output[:2])
    other = {first: second, second: first}
    for node in model.graph.node:
        for side in (node.input, node.output):
            for at, name in enumerate(side):
                side[at] = other.get(name, name)
    return True


def _scales(model: ModelProto, side: int) -> Iterator[TensorProto]:
    """The scales (1) or zero points (2) of the activations of the middle half."""
    known = initializers(model)
    found = [node for node in nodes(model, "QuantizeLinear") if node.input[0] not in known]
    for node in found[len(found) // 4 : 3 * len(found) // 4]:
        yield known[node.input[side]]


def halved_range(model: ModelProto) -> bool:
    found = list(_scales(model, 1))
    for tensor in found:
        put(tensor, numpy_helper.to_array(tensor) / 2)
    return bool(found)


def shifted_zero(model: ModelProto) -> bool:
    found = list(_scales(model, 2))
    known = initializers(model)
    partner = {node.input[0]: node for node in nodes(model, "DequantizeLinear")}
    for node in nodes(model, "QuantizeLinear"):
        zero = known.get(node.input[2])
        other = partner.get(node.output[0])
        if zero in found and other is not None:
            moved = numpy_helper.to_array(zero).astype(np.int64) + (1 << 12)
            copy = f"{node.output[0]}/broken"
            kind = numpy_helper.to_array(zero).dtype
            constant(model, copy, np.clip(moved, 0, np.iinfo(kind).max).astype(kind))
            other.input[2] = copy
    return bool(found)


def _caches(model: ModelProto) -> list[str]:
    """The inputs that hold what a decoder has computed of its own tokens."""
    names = [item.name for item in model.graph.input]
    return [one for one in names if one.startswith("past_key_values.") and "encoder" not in one]


def no_cache(model: ModelProto) -> bool:
    """A step sees nothing of the tokens before it."""
    found = _caches(model)
    for number, name in enumerate(found):
        zero = constant(model, f"broken/zero{number}", np.float32(0))
        made = [helper.make_node("Mul", [name, zero], [f"broken/cache{number}"])]
        replaced(model, name, made, f"broken/cache{number}")
    return bool(found)


def other_cache(first: int, second: int) -> Break:
    """A step reads two of its caches in each other's place."""

    def broken(model: ModelProto) -> bool:
        found = _caches(model)
        if len(found) <= max(first, second):
            return False
        pair = found[first], found[second]
        other = {pair[0]: "broken/second", pair[1]: "broken/first"}
        for node in model.graph.node:
            for at, given in enumerate(node.input):
                node.input[at] = other.get(given, given)
        for name, by in zip(pair, ("broken/first", "broken/second"), strict=True):
            model.graph.node.insert(0, helper.make_node("Identity", [name], [by]))
        return True

    return broken


def faint_cache(model: ModelProto) -> bool:
    """What a step adds to a cache is a tenth of what it should be."""
    names = [one.name for one in model.graph.output if one.name.startswith("present")]
    for number, name in enumerate(names):
        for node in model.graph.node:
            for side in (node.input, node.output):
                for at, given in enumerate(side):
                    if given == name:
                        side[at] = f"broken/present{number}"
        scale = constant(model, f"broken/scale{number}", np.float32(0.1))
        model.graph.node.append(helper.make_node("Mul", [f"broken/present{number}", scale], [name]))
    return bool(names)


BREAKAGES: Mapping[str, Break] = {
    "the mask is ignored": input_is("attention_mask", 1),
    "the token types are ignored": input_is("token_type_ids", 0),
    "the positions are ignored": table("position", lambda value: 0 * value),
    "the vocabulary is shifted by a row": table("word", lambda value: np.roll(value, 1, 0)),
    "inputs are clipped to 0..1": clipped_input,
    "the weights of a block are zero": block,
    "the weights of a layer are noise": weight(noise),
    "a weight has the wrong scale": weight(lambda value: 2 * value),
    "a weight has the wrong sign": weight(lambda value: -value),
    "a weight is transposed": transposed,
    "half of the attention heads are missing": half_of_heads,
    "biases are missing": no_biases,
    "the gain of norms is missing": no_gain,
    "norms have another epsilon": wide_epsilon,
    "ReLU in place of GELU": relu_for_gelu,
    "softmax along another axis": softmax_axis,
    "a residual connection is missing": no_residual,
    "an offset is added": after(offset),
    "the output is always the same": after(constant_output),
    "the end of the output is cut off": after(cut),
    "the output is reversed": after(reversed_rows),
    "two outputs are swapped": swapped,
}
NEED_TRAINING = {"biases are missing", "the gain of norms is missing"}
"""Random weights have zeros and ones there: only graphs that are made `alive` show it."""
CACHED: Mapping[str, Break] = {
    "the cache is ignored": no_cache,
    "keys are read as values": other_cache(0, 1),
    "the caches of two layers are swapped": other_cache(0, 2),
    "cached values are ten times too small": faint_cache,
}
"""Of a decoder with a cache, beside the others."""
QUANTIZED: Mapping[str, Break] = {
    "ranges of activations are halved": halved_range,
    "zero points are shifted": shifted_zero,
}
"""Of a graph in w8a16."""


@dataclass(frozen=True, slots=True)
class Old:
    """What the old gate measured."""

    cosine: float
    error: float

    def misses(self, limit: float) -> bool:
        """Whether a graph passed it."""
        return self.cosine >= limit and self.error <= 1.5 * math.sqrt(2 * (1 - limit))


COSINES = {"fp32": 0.9999, "w8a16": 0.95}
"""The limits of the old gate."""


def old_samples(ports: Sequence[Any], sizes: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Three samples as they were: masks that hide nothing, pixels in 0..1, random ids."""
    found = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        sample: dict[str, Any] = {}
        for port in ports:
            shape = sizes[port.name]
            if "mask" in port.name:
                sample[port.name] = np.ones(shape, np.int64)
            elif port.type == "tensor(int64)":
                most = 2 if "type" in port.name else 60
                sample[port.name] = random.integers(0, most, shape)
            else:
                sample[port.name] = random.random(shape).astype(np.float32)
        found.append(sample)
    return found


def old_measure(found: Sequence[Any], wanted: Sequence[Any]) -> Old:
    """The worst of all samples and outputs, of raw values."""
    cosines: list[float] = []
    errors: list[float] = []
    for ours, theirs in zip(found, wanted, strict=True):
        for mine, yours in zip(ours, theirs, strict=True):
            if mine.shape != yours.shape or not np.isfinite(mine).all():
                return Old(-1.0, math.inf)
            a, b = mine.astype(np.float64).ravel(), yours.astype(np.float64).ravel()
            size = np.linalg.norm(a) * np.linalg.norm(b)
            cosines.append(float(a @ b / size) if size else float(np.array_equal(a, b)))
            errors.append(float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), 1e-12))
    return Old(min(cosines), max(errors))
