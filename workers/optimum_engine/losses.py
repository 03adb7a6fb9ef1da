"""What quantization loses: the distance of a graph's outputs, and which operators cause it.

Outputs are compared as verification compares them, with the same limits, on other samples.
ONNX Runtime's CPU provider computes the quantized graph literally: a quantized operator computes in
float between rounded values, and an NPU differs from that by less than a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matrix.verification import Limit
from workers.numerics.compare import MOST_DB, compare, fault
from workers.numerics.kept import Shapes, counted
from workers.optimum_engine import calibrate
from workers.sources import model_file, onnx_graph, runtime

Sample = Mapping[str, Any]
_WEIGHTED = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_MOST_RUNS = 64
"""How often a graph is run at most with a sample to find the operators that lose most."""
_MOST_SAMPLES = 4
"""Of these: a logarithm of what rounds to nothing ruins a sound with silence in it, and no other.
"""
_SPARE = 1.0
"""How many decibels above the limit a graph must be: a device rounds a little otherwise."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the outputs of a graph are from the float graph's."""

    snr: float
    """Decibels of the worst output (`workers.numerics`)."""
    fault: str = ""
    """What parity has against it; empty: nothing."""


class Judge:
    """Compares quantized graphs with a float graph, on samples, as verification does."""

    def __init__(self, source: Path, sets: Sequence[Sample], params: Mapping[str, Any]) -> None:
        limits = {
            name: params[name] for name in ("agreement", "floor", "max_abs") if name in params
        }
        self._limit = Limit(params["snr"] + _SPARE, **limits)
        self._task = params.get("task", "")
        self._sets = sets
        self._wanted = self._outputs(source)
        model = model_file.load_graph(source)
        inputs, declared = _shapes(model.graph.input), _shapes(model.graph.output)
        self._counts = [
            counted(sample, inputs, outputs, declared)
            for sample, outputs in zip(sets, self._wanted, strict=True)
        ]

    def distance(self, folder: Path) -> Distance:
        """Of the graph in a folder, the worst output over all samples.

        With the basic optimizations, as apps open it: they quantize the weights of operators that
        we leave in float between quantized ones. Those beyond depend on the processor.
        """
        return self.between(self._outputs(folder, "basic"))

    def between(self, found: Sequence[Mapping[str, Any]]) -> Distance:
        """The same of these outputs."""
        rows = compare(found, self._wanted, self._limit, task=self._task, counts=self._counts)
        faults = [
            f"{name}: {text}"
            for name, row in rows.items()
            if (text := row.get("absent") or fault(row, self._limit, "the float graph"))
        ]
        broken = any({"absent", "problem"} & row.keys() for row in rows.values())
        worst = min((row["snr"] for row in rows.values() if "snr" in row), default=MOST_DB)
        return Distance(-MOST_DB if broken else worst, faults[0] if faults else "")

    def _outputs(self, folder: Path, level: str = "disabled") -> list[dict[str, Any]]:
        ready = runtime.session(folder / model_file.MODEL, runtime.options_for(level))
        return [runtime.run(ready, sample) for sample in self._sets]


def _shapes(values: Iterable[Any]) -> Shapes:
    return {value.name: onnx_graph.dims(value) for value in values}


def of_weights(
    ready: Path, quantized: Path, sets: Sequence[Sample], temp: Path
) -> dict[str, float]:
    """How much the outputs lose if only one operator's weight is rounded, as in `quantized`.

    Weights become inputs of the float graph `ready`, so one session serves all of them. Of many
    operators, neighbours are rounded together.
    """
    model = model_file.load_graph(ready)
    rounded = _rounded(model_file.load(quantized / model_file.MODEL))  # integers: a quarter
    named = {node.name: node.input[1] for node in weighted(model) if node.input[1] in rounded}
    _let_override(model, named.values())
    session = runtime.session(model_file.save_graph(model, ready, temp))
    changes = {name: partial(_given, named[name], rounded) for name in named}
    return _lost(session, sets, {}, changes)


def of_results(
    ready: Path,
    ranges: Mapping[str, tuple[float, float]],
    sets: Sequence[Sample],
    temp: Path,
    steps: int,
    exact: Collection[str] = (),
) -> dict[str, float]:
    """How much the outputs lose if only one operator's results are rounded to so many steps of
    their ranges.

    A result by itself does not tell that: one channel that is larger than all others hides what
    these lose, and an operator further on may need them. Every result is rounded behind a switch,
    which is an input. Of many operators, neighbours are rounded together. `exact`: the types of
    those that are left out.
    """
    import numpy as np
    from onnx import TensorProto, helper

    model = model_file.load_graph(ready)
    floats = calibrate.float_tensors(model).keys() & ranges.keys()
    switches: dict[str, list[str]] = {}
    added: list[Any] = []
    for node in [one for one in model.graph.node if one.op_type not in exact]:
        for place, name in enumerate(node.output):
            if name in floats:
                node.output[place] = f"{name}/exact"
                added += _rounding(name, *ranges[name], steps)
                switches.setdefault(node.name, []).append(f"{name}/switch")
    model.graph.node.extend(added)
    every = [name for names in switches.values() for name in names]
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in every
    )
    onnx_graph.sort(model.graph)
    session = runtime.session(model_file.save_graph(model, ready, temp))
    off, on = np.array(False), np.array(True)
    changes = {name: partial(dict.fromkeys, own, on) for name, own in switches.items()}
    return _lost(session, sets, dict.fromkeys(every, off), changes)


def _rounding(name: str, low: float, high: float, steps: int) -> list[Any]:
    """The nodes that make a tensor from its exact values, rounded if its switch is on."""
    from onnx import helper

    low, high = min(low, 0.0), max(high, 0.0)
    values = {"step": (high - low) / steps or 1.0, "low": low, "high": high}
    own = {key: f"{name}/{key}" for key in (*values, "exact", "switch", "many", "whole", "near")}
    return [
        *(helper.make_node("Constant", [], [own[key]], value_float=values[key]) for key in values),
        helper.make_node("Div", [own["exact"], own["step"]], [own["many"]]),
        helper.make_node("Round", [own["many"]], [own["whole"]]),
        helper.make_node("Mul", [own["whole"], own["step"]], [f"{own['near']}/open"]),
        helper.make_node("Clip", [f"{own['near']}/open", own["low"], own["high"]], [own["near"]]),
        helper.make_node("Where", [own["switch"], own["near"], own["exact"]], [name]),
    ]


def _given(name: str, values: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    return {name: values[name]()}


def _lost(
    session: Any,
    sets: Sequence[Sample],
    usual: Sample,
    changes: Mapping[str, Callable[[], Mapping[str, Any]]],
) -> dict[str, float]:
    """How much the outputs lose at most in a few samples, by what changes the `usual` inputs for
    each operator, or for a group: relative to how far they vary between these samples, as parity
    tells it."""
    known = {item.name for item in session.get_inputs()}
    feeds = [{name: one[name] for name in one if name in known} | dict(usual)
             for one in sets[:_MOST_SAMPLES]]  # fmt: skip
    wanted = [session.run(None, one) for one in feeds]
    spreads = [_spread(rows) for rows in zip(*wanted, strict=True)]
    lost: dict[str, float] = {}
    names, size = list(changes), math.ceil(len(changes) / _MOST_RUNS)
    for start in range(0, len(names), max(size, 1)):
        group = names[start : start + size]
        given: dict[str, Any] = {}
        for name in group:
            given |= changes[name]()
        losses = [
            _error(found, exact, spread)
            for one, outputs in zip(feeds, wanted, strict=True)
            for found, exact, spread in zip(
                session.run(None, one | given), outputs, spreads, strict=True
            )
        ]
        lost |= dict.fromkeys(group, max(losses, default=0.0))
    return lost


def weighted(model: Any) -> list[Any]:
    """The nodes that multiply by a weight."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [
        node
        for node in model.graph.node
        if node.op_type in _WEIGHTED and node.input[1] in weights and node.output[0]
    ]


def _rounded(model: Any) -> dict[str, Callable[[], Any]]:
    """What makes the values of every dequantized weight, by the name that it has in the float
    graph."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    return {
        node.input[0].removesuffix("_quantized"): partial(_dequantized, node, weights)
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in weights
    }


def _dequantized(node: Any, weights: Mapping[str, Any]) -> Any:
    import numpy as np
    from onnx import numpy_helper

    whole, scale, zero = (numpy_helper.to_array(weights[name]) for name in node.input)
    axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
    shape = [-1 if place == axis else 1 for place in range(whole.ndim)]
    if scale.ndim:
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (whole.astype(np.float32) - zero.astype(np.float32)) * scale


def _let_override(model: Any, names: Iterable[str]) -> None:
    """List weights among the inputs, where their own values are the default."""
    from onnx import helper

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    known = {value.name for value in model.graph.input}
    model.graph.input.extend(
        helper.make_tensor_value_info(name, weights[name].data_type, weights[name].dims)
        for name in dict.fromkeys(names)
        if name not in known
    )


def _error(found: Any, wanted: Any, spread: float) -> float:
    import numpy as np

    if wanted.dtype.kind != "f":
        return float((found != wanted).mean()) if wanted.size else 0.0
    finite = np.isfinite(wanted)
    if not np.isfinite(found[finite]).all():
        return math.inf
    length = spread or float(np.linalg.norm(wanted[finite]))
    return float(np.linalg.norm((found - wanted)[finite])) / length if length else 0.0


def _spread(rows: Sequence[Any]) -> float:
    """The usual length of what distinguishes an output's values for one sample from those for all;
    0 if these cannot be compared."""
    import numpy as np

    shapes = {row.shape for row in rows}
    if len(shapes) > 1 or rows[0].dtype.kind != "f" or not all(map(np.all, map(np.isfinite, rows))):
        return 0.0
    apart = np.stack(rows).astype(np.float64)
    return float(np.linalg.norm(apart - apart.mean(axis=0)) / math.sqrt(len(rows)))
