"""Calibration: the range of every float tensor of a graph over the samples.

Transformers hide positions by adding the lowest float. In a quantization range that value would
leave one step for everything else, so a quantized graph gets a smaller negative value: large enough
that softmax gives 0 to a hidden position, small enough that scores keep their resolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.sources import model_file, onnx_graph, runtime, weight_file
from workers.sources.errors import quantize_error

_CHUNK_BYTES = 1024**3
"""Activations fetched in one run; more than that takes several runs."""
_MANTISSA_BITS = 12

DEPTH = {"w8a16": 100.0, "w8a8": 50.0}
"""The value of a mask in a quantized graph, in place of minus infinity."""
ENDLESS = 1e30
"""A larger value is a mask, not the result of a computation."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What of a tensor's values makes its range."""

    depth: float
    """Endless values (masks that the graph computes) count as this."""
    outermost: float = 0.0
    """The share of the values that is left out, half of it at each end, in every sample."""


def ranges(
    source: Path,
    sets: Sequence[Mapping[str, Any]],
    temp: Path,
    limits: Limits,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, tuple[float, float]]:
    """The range of every float tensor over all samples, slightly widened.

    CPUs differ in the order of their sums, which would change the last bits of a range and so the
    bytes of the artifact; rounding outwards to few bits hides that, at no cost in accuracy.
    """
    model = model_file.load_graph(source)
    tensors = float_tensors(model)
    inputs = {value.name for value in model.graph.input}
    present = {value.name for value in model.graph.output}
    model.graph.output.extend(
        value for name, value in tensors.items() if name not in present | inputs
    )
    ready = runtime.session(model_file.save_graph(model, source, temp))
    found: dict[str, tuple[float, float]] = {}
    for number, sample in enumerate(sets, 1):
        progress(f"calibrating {number}/{len(sets)}")
        widen(
            found,
            {name: sample[name] for name in inputs & tensors.keys() if name in sample},
            limits,
        )
        for names in chunks(tensors, inputs):
            outputs = ready.run(names, {key: sample[key] for key in inputs if key in sample})
            widen(found, dict(zip(names, outputs, strict=True)), limits)
    return {name: rounded(*bounds) for name, bounds in sorted(found.items())}


def float_tensors(model: Any) -> dict[str, Any]:
    """The float tensors of a graph that are no weights, with their types."""
    import onnx

    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: value
        for value in values
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT and value.name not in weights
    }


def chunks(tensors: Mapping[str, Any], inputs: Iterable[str]) -> list[list[str]]:
    """The names of all tensors but the inputs, in parts that one run can fetch."""
    parts: list[list[str]] = [[]]
    size = 0
    for name in sorted(tensors.keys() - set(inputs)):
        dims = tensors[name].type.tensor_type.shape.dim
        need = 4 * math.prod(max(dim.dim_value, 1) for dim in dims)
        if parts[-1] and size + need > _CHUNK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += need
    return [part for part in parts if part]


def widen(found: dict[str, tuple[float, float]], arrays: Mapping[str, Any], limits: Limits) -> None:
    for name, array in arrays.items():
        if not array.size:
            continue
        low, high = finite_bounds(array, limits)
        if math.isnan(low) or math.isnan(high):
            raise quantize_error(
                f"the model computes NaN at '{name}'", "check the model or its dataset"
            )
        before = found.get(name, (low, high))
        found[name] = min(low, before[0]), max(high, before[1])


def finite_bounds(array: Any, limits: Limits) -> tuple[float, float]:
    import numpy as np

    low, high = float(array.min()), float(array.max())
    if math.isnan(low):
        return low, high
    if low >= -ENDLESS and high <= ENDLESS:
        return _inner(array, limits.outermost)
    finite = array[np.abs(array) <= ENDLESS]
    inner = _inner(finite, limits.outermost) if finite.size else (0.0, 0.0)
    return (
        min(inner[0], -limits.depth) if low < -ENDLESS else inner[0],
        max(inner[1], limits.depth) if high > ENDLESS else inner[1],
    )


def _inner(array: Any, outermost: float) -> tuple[float, float]:
    """The bounds of an array without the outermost share of its values."""
    import numpy as np

    if not outermost:
        return float(array.min()), float(array.max())
    # Values of the array, not between them, so that every CPU finds the same.
    ends = (outermost / 2, 1 - outermost / 2)
    low, high = np.quantile(array, ends, method="closest_observation")
    return float(low), float(high)


def rounded(low: float, high: float) -> tuple[float, float]:
    return outwards(low, -1), outwards(high, 1)


def outwards(value: float, direction: int) -> float:
    if value == 0 or math.isinf(value):
        return value
    mantissa, exponent = math.frexp(value)
    scaled = mantissa * 2**_MANTISSA_BITS
    snapped = math.ceil(scaled) if direction > 0 else math.floor(scaled)
    # A value very near the grid (1.0 as 0.99999994) belongs on it.
    nearest = round(scaled)
    if abs(scaled - nearest) < 1e-3:
        snapped = nearest
    return math.ldexp(snapped, exponent - _MANTISSA_BITS)


def make_shallow(model: Any, depth: float, source: Path) -> int:
    """Replace endless values in the constants of a graph; returns how many tensors had some."""
    return sum(_shallow(tensor, depth, source) for tensor in onnx_graph.tensors(model))


def _shallow(tensor: Any, depth: float, source: Path) -> bool:
    import numpy as np
    from onnx import TensorProto, numpy_helper

    if tensor.data_type != TensorProto.FLOAT:
        return False
    values = weight_file.values(tensor, source)
    if not values.size or (values.max() <= ENDLESS and values.min() >= -ENDLESS):
        return False
    endless = np.abs(values) > ENDLESS
    if not endless.any():
        return False
    shallow = np.where(endless, np.sign(values) * np.float32(depth), values)
    tensor.CopyFrom(numpy_helper.from_array(shallow.astype(np.float32), tensor.name))
    return True
