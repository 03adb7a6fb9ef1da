"""Calibration: the range of every float tensor of a graph over the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.optimum_engine import histograms, masks
from workers.sources import model_file, runtime, weight_file
from workers.sources.errors import quantize_error

_CHUNK_BYTES = 1024**3
"""Activations fetched in one run; more than that takes several runs."""
_MANTISSA_BITS = 12
_BETWEEN = {
    "HardSigmoid": (0.0, 1.0),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}
"""Between which numbers these operators' results lie."""
_NEAR = 1e-5
"""What lies nearer than this to a whole number is one: CPUs differ in the last bits."""
_SOME = 256
"""So many values of a tensor mostly show that not all are whole numbers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What of a tensor's values makes its range."""

    depth: float
    """What hides a position (in a mask that the graph computes) counts as this."""
    levels: int
    """The steps of a range."""
    method: str = "minmax"
    margin: float = 0.0
    """By how much of its size each end of a range is moved outwards."""


def ranges(
    source: Path,
    sets: Sequence[Mapping[str, Any]],
    temp: Path,
    limits: Limits,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, tuple[float, float]]:
    """The range of every float tensor over all samples, slightly widened.

    A tensor has none if it is always empty, or if it has endless values that hide nothing: no
    range could hold these.

    CPUs differ in the order of their sums, which would change the last bits of a range and so the
    bytes of the artifact; rounding outwards to few bits hides that, at no cost in accuracy.
    """
    model = model_file.load_graph(source)
    tensors = float_tensors(model)
    inputs = {value.name for value in model.graph.input}
    present = {value.name for value in model.graph.output}
    found = _Found(limits, masks.acting(model))
    hidden = masks.hidden(model, limits.depth, source)
    model.graph.output.extend(
        value for name, value in tensors.items() if name not in present | inputs
    )
    ready = runtime.session(model_file.save_graph(model, source, temp))
    parts = chunks(tensors, inputs)
    for number, sample in enumerate(sets, 1):
        progress(f"calibrating {number}/{len(sets)}")
        found.widen({name: sample[name] for name in inputs & tensors.keys() if name in sample})
        for names in parts:
            outputs = ready.run(names, {key: sample[key] for key in inputs if key in sample})
            found.widen(dict(zip(names, outputs, strict=True)))
    between = _between(model, source)
    ranges = {
        name: _widened(*one, limits.margin, between.get(name))
        for name, one in found.ranges().items()
    }
    for name in hidden & ranges.keys():
        low, high = ranges[name]
        ranges[name] = min(low, -limits.depth), high
    made = {name: rounded(*bounds) for name, bounds in sorted(ranges.items())}
    return made | {name: _exact(*made[name], limits.levels) for name in found.whole & made.keys()}


def _exact(low: float, high: float, levels: int) -> tuple[float, float]:
    """A range that holds this one, and every whole number as exactly that.

    What is cast to a truth or a whole number, compared or rounded must not become a little less:
    the HTP casts 0.99998 to 0, and then a mask hides nothing.
    """
    least, most = min(low, 0.0), max(high, 0.0)
    step = 2.0 ** math.ceil(math.log2((most - least) / levels))
    if math.floor(least / step) + levels < most / step:
        step *= 2
    start = math.floor(least / step)
    return (start * step, (start + levels) * step) if step <= 1 else (low, high)


def _widened(
    low: float, high: float, margin: float, between: tuple[float, float] | None
) -> tuple[float, float]:
    least, most = between or (-math.inf, math.inf)
    wide = low + margin * min(low, 0.0), high + margin * max(high, 0.0)
    return max(wide[0], min(least, low)), min(wide[1], max(most, high))


def _between(model: Any, source: Path) -> dict[str, tuple[float, float]]:
    """The numbers between which the results of some operators lie, whatever their inputs are.

    The quantizer leaves out a Clip, because the range of its result cuts off the same: with room
    beyond the Clip's own ends, it would not. It leaves out a Clip or Relu that follows as well.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found: dict[str, tuple[float, float]] = {}
    for node in model.graph.node:
        if node.op_type == "Clip":
            given = dict(zip(("min", "max"), node.input[1:], strict=False))
            ends = {item.name: item.f for item in node.attribute}
            for end, name in given.items():
                if name:
                    # Without the number: no room.
                    none = math.inf if end == "min" else -math.inf
                    tensor = constants.get(name)
                    ends[end] = weight_file.values(tensor, source).item() if tensor else none
            least, most = found.get(node.input[0], (-math.inf, math.inf))
            low, high = ends.get("min", -math.inf), ends.get("max", math.inf)
            found[node.output[0]] = max(low, least), min(high, most)
        elif node.op_type == "Relu" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
        elif node.op_type in _BETWEEN:
            found[node.output[0]] = _BETWEEN[node.op_type]
    return found


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


class _Found:
    """What is known of tensors after the samples so far."""

    def __init__(self, limits: Limits, hiding: set[str]) -> None:
        self._limits = limits
        self._hiding = hiding
        self._endless: set[str] = set()
        self._bounds: dict[str, list[tuple[float, float]]] = {}
        self._counts: dict[str, Any] = {}
        self._others: set[str] = set()

    @property
    def whole(self) -> set[str]:
        """The tensors that hold whole numbers alone, and not only zeros."""
        return {
            name
            for name in self._bounds.keys() - self._others
            if any(max(-low, high) > 0.5 for low, high in self._bounds[name])
        }

    def widen(self, arrays: Mapping[str, Any]) -> None:
        """Take another sample's values."""
        for name, array in arrays.items():
            if not array.size or name in self._endless:
                continue
            hides = name in self._hiding
            low, high = bounds(array, self._limits.depth, hides=hides)
            if math.isnan(low) or math.isnan(high):
                raise quantize_error(
                    f"the model computes NaN at '{name}'", "check the model or its dataset"
                )
            if max(-low, high) > masks.ENDLESS:
                self._endless.add(name)
                self._bounds.pop(name, None)
                continue
            self._bounds.setdefault(name, []).append((low, high))
            if name not in self._others:
                some = array.flat[:: max(1, array.size // _SOME)]
                if not (_whole(some) and _whole(array)):
                    self._others.add(name)
            # Cutting off what hides would let it be seen.
            if self._limits.method in {"percentile", "mse"} and not hides:
                made = histograms.counts(array)
                self._counts[name] = self._counts[name] + made if name in self._counts else made

    def ranges(self) -> dict[str, tuple[float, float]]:
        """By the method of the limits."""
        return {name: self._range(name, several) for name, several in self._bounds.items()}

    def _range(self, name: str, several: Sequence[tuple[float, float]]) -> tuple[float, float]:
        lows, highs = zip(*several, strict=True)
        low, high, limits = min(lows), max(highs), self._limits
        if limits.method == "average" and name not in self._hiding:
            return math.fsum(lows) / len(lows), math.fsum(highs) / len(highs)
        if name not in self._counts:
            return low, high
        if limits.method == "percentile":
            return histograms.percentile(self._counts[name], low, high)
        return histograms.mse(self._counts[name], low, high, limits.levels)


def _whole(array: Any) -> bool:
    import numpy as np

    return bool((np.abs(array - np.rint(array)) < _NEAR).all())


def bounds(array: Any, depth: float, *, hides: bool) -> tuple[float, float]:
    """The bounds of a tensor's values, as they are if these are NaN or endless.

    `hides`: its largest values hide positions, and count as `depth`.
    """
    import numpy as np

    low, high = float(array.min()), float(array.max())
    if not hides or not max(-low, high) > masks.HIDES:
        return low, high
    finite = array[np.abs(array) <= masks.HIDES]
    inner = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return (
        min(inner[0], -depth) if low < -masks.HIDES else inner[0],
        max(inner[1], depth) if high > masks.HIDES else inner[1],
    )


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
