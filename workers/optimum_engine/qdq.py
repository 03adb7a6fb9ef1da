"""QDQ graphs in QNN's own configuration: 8-bit weights, uint16 or uint8 activations.

Weights of the operators that the target's row names (`channels`) are int8 with a scale per channel;
with one scale, an outlier reduces the resolution of all channels (all-MiniLM-L6-v2 w8a16: cosine
0.967 with one scale per tensor, 0.998 with one per channel). All other weights are uint8 with one
scale.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matrix.model import CHANNELS
from workers.optimum_engine import calibrate, device_limits, weight_only
from workers.optimum_engine.architectures.patched import patched
from workers.sources import model_file, onnx_graph, weight_file
from workers.sources.errors import quantize_error

LEVELS = {"w8a16": 65535, "w8a8": 255}
"""The steps of an activation's range."""
MARGIN = {"w8a16": 0.5, "w8a8": 0.0}
"""How far a range goes beyond the values that calibration has seen. What lies outside is cut off,
which costs more than half a bit of 16; 8 bits have no steps to spare."""
_MOST = 127
"""The largest int8."""
_LEAST_RANGE = 1e-4
"""QNN takes no smaller one."""
_NOT_QUANTIZED = ("Cast", "QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a graph is quantized."""

    precision: str
    blocked: tuple[str, ...] = ()
    """Operators that stay in floating point."""
    calibration: str = "minmax"
    per_channel: tuple[str, ...] = CHANNELS
    """Operators whose weights have a scale for each channel."""
    symmetric: bool = False
    rewrites: frozenset[str] = frozenset()
    """What the provider's limits ask for (`device_limits`)."""
    smooth: bool = False
    """Whether channels that stand out move into weights (`smoothing`)."""
    wide: frozenset[str] = frozenset()
    """Nodes with 16 bits: in w8a16 for their weights, in w8a8 for their results."""
    floats: frozenset[str] = frozenset()
    """Nodes that stay in floating point."""

    @classmethod
    def asked(
        cls,
        precision: str,
        blocked: Sequence[str],
        params: Mapping[str, Any],
        rewrites: Iterable[str] = (),
    ) -> Settings:
        """As the parameters of the stage say."""
        return cls(
            precision,
            tuple(blocked),
            params.get("calibration", "minmax"),
            tuple(params.get("channels", CHANNELS)) if params.get("per_channel", True) else (),
            params.get("symmetric", False),
            frozenset(rewrites),
        )


def quantize(ready: Path, found: Mapping[str, tuple[float, float]], settings: Settings) -> Any:
    """The QDQ graph of a prepared float graph, with these ranges of its tensors."""
    import numpy as np
    from onnxruntime.quantization import (
        CalibrationMethod,
        QuantType,
        base_quantizer,
        qdq_quantizer,
        quant_utils,
    )
    from onnxruntime.quantization.calibrate import TensorData, TensorsData
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    activation = QuantType.QUInt16 if settings.precision == "w8a16" else QuantType.QUInt8
    data = {
        name: TensorData(lowest=np.float32(low), highest=np.float32(high))
        for name, (low, high) in found.items()
    }
    model = model_file.load_graph(ready)
    floats = settings.floats | _without_range(model, found)
    roots = list(_lost_roots(model, found, LEVELS[settings.precision]))
    if "epsilons" in settings.rewrites:
        _raise_epsilons(model, roots)
    else:
        floats |= _around(model, [root for root, _sum, _step in roots])
    # Without this mark the quantizer infers the types again, of a copy of the model.
    quant_utils.add_infer_metadata(model)
    types = sorted({node.op_type for node in model.graph.node} - in_float(settings))
    logging.getLogger().setLevel(logging.ERROR)  # it warns about every tensor that it skips
    config = get_qnn_qdq_config(
        str(ready / model_file.MODEL),  # as a path: measuring a model in memory fails beyond 2 GiB
        _NoReader(),
        activation_type=activation,
        weight_type=QuantType.QUInt8,
        init_overrides=_Overrides(_overrides(model, ready, types, settings, activation)) or None,
        activation_symmetric=settings.symmetric,
        add_qtype_converts=bool(settings.wide) and settings.precision == "w8a8",
        op_types_to_quantize=types,
        nodes_to_exclude=sorted(floats),
    )
    quantizer = qdq_quantizer.QDQQuantizer(
        model,
        config.per_channel,
        config.reduce_range,
        config.weight_type,
        config.activation_type,
        TensorsData(CalibrationMethod.MinMax, data),
        [],
        config.nodes_to_exclude,
        config.op_types_to_quantize,
        config.extra_options,
    )
    # It expects the weights in the graph; so it reads those beside it, one at a time.
    read = partial(weight_file.values, folder=ready)
    modules = (base_quantizer, qdq_quantizer, quant_utils)
    # It rounds the channels of a weight one by one, which takes half of its time.
    whole = partial(_rounded, quant_utils.quantize_onnx_initializer, read)
    with (
        patched("tensor_proto_to_array", read, *modules),
        patched("quantize_onnx_initializer", whole, qdq_quantizer),
    ):
        quantizer.quantize_model()
    return quantizer.model.model


def in_float(settings: Settings) -> set[str]:
    """The operators of which none is quantized."""
    return {*_NOT_QUANTIZED, *settings.blocked}


def _without_range(model: Any, found: Mapping[str, tuple[float, float]]) -> set[str]:
    """Nodes with a tensor that has no range: it is always empty, or endless, or a Softmax has it
    in another type than float32, to which the quantizer gives a range of its own."""
    nodes = model.graph.node
    lacking = calibrate.float_tensors(model).keys() - found.keys()
    lacking |= {node.output[0] for node in nodes if node.op_type == "Softmax"} - found.keys()
    return {node.name for node in nodes if not lacking.isdisjoint((*node.input, *node.output))}


def norms(model: Any) -> Iterator[tuple[Any, Any, float]]:
    """The roots of norms, the sum below each, and the constant that this adds."""
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    sums = {node.output[0]: node for node in model.graph.node if node.op_type == "Add"}
    for root in [node for node in model.graph.node if node.op_type == "Sqrt"]:
        node = sums.get(root.input[0])
        epsilon = weights.get(node.input[1]) if node is not None else None
        if node is not None and epsilon is not None and math.prod(epsilon.dims) == 1:
            yield root, node, numpy_helper.to_array(epsilon).item()


def _lost_roots(
    model: Any, found: Mapping[str, tuple[float, float]], levels: int
) -> Iterator[tuple[Any, Any, float]]:
    """The roots of norms that add less than a step of their sum's range, that sum and the step.

    It would round to nothing, and a row of zeros would be divided by zero.
    """
    for root, node, epsilon in norms(model):
        step = max(found.get(node.output[0], (0.0, 0.0))[1], 0.0) / levels
        if 0 < epsilon < step:
            yield root, node, step


def _raise_epsilons(model: Any, roots: Iterable[tuple[Any, Any, float]]) -> None:
    """Let what these norms add be a step."""
    import numpy as np
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for _root, node, step in roots:
        epsilon = numpy_helper.to_array(weights[node.input[1]])
        node.input[1] = f"{node.input[1]}/{node.name}"
        raised = np.full_like(epsilon, step)
        model.graph.initializer.append(numpy_helper.from_array(raised, node.input[1]))


def _around(model: Any, roots: Sequence[Any]) -> set[str]:
    """The operators of these norms, from the squares to the division by the root."""
    weights = {tensor.name for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    users: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    found = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        found.add(node.name)
        if len([name for name in node.input if name not in weights]) == 1:
            pending += users.get(node.output[0], ())
    for root in roots:
        sum_ = makers[root.input[0]]
        mean = makers.get(sum_.input[0])
        square = makers.get(mean.input[0]) if mean is not None else None
        found |= {one.name for one in (sum_, mean, square) if one is not None}
    return found


def _overrides(
    model: Any, ready: Path, types: Sequence[str], settings: Settings, activation: Any
) -> dict[str, list[dict[str, Any]]]:
    """What differs from the configuration: weights with a scale per output channel or with 16
    bits, biases with the type of activations, and in w8a8 results of 16 bits."""
    from onnxruntime.quantization import QuantType

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    kinds: dict[str, set[tuple[Any, int | None] | None]] = {}
    made: dict[str, list[dict[str, Any]]] = {}
    for node in model.graph.node:
        quantized = node.op_type in types and node.name not in settings.floats
        for index, name in enumerate(node.input):
            if name in weights:
                own = quantized and index == 1
                kind = _kind(node, weights[name], settings, QuantType) if own else None
                kinds.setdefault(name, set()).add(kind)
        if quantized and node.name in settings.wide and settings.precision == "w8a8":
            made[node.output[0]] = [{"quant_type": QuantType.QUInt16}]
    for name, found in kinds.items():
        kind = found.pop() if len(found) == 1 else None
        if kind is not None:
            made[name] = _rows(kind[0], kind[1], weights[name], ready)
    wanted = {"quant_type": activation}
    several = device_limits.biases_of_several(model) if "biases" in settings.rewrites else ()
    return {name: [wanted] for name in several} | made


def _rows(kind: Any, axis: int | None, weight: Any, ready: Path) -> list[dict[str, Any]]:
    """What overrides the configuration for a weight: its type and the scale of each channel."""
    import numpy as np

    if axis is None:
        return [{"quant_type": kind, "symmetric": True}]
    values = np.moveaxis(weight_file.values(weight, ready), axis, 0)
    rows = values.reshape(len(values), -1)
    peaks = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    scales = np.maximum(peaks, _LEAST_RANGE) / np.float32(_MOST)
    return [{"quant_type": kind, "axis": axis, "scale": scale, "zero_point": 0} for scale in scales]


def _rounded(
    each: Callable[..., Any],
    read: Callable[[Any], Any],
    weight: Any,
    kind: int,
    zero_point: Any,
    scale: Any,
    axis: int | None = None,
    **more: Any,
) -> Any:
    """A weight in integers, all channels of an int8 one at once; others as ONNX Runtime does it."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    if axis is None or kind != TensorProto.INT8:
        return each(weight, kind, zero_point, scale, axis, **more)
    values = np.moveaxis(read(weight), axis, 0)
    rounded = np.empty(values.shape, np.int8)
    steps = np.asarray(scale, np.float32).reshape(-1, *[1] * (values.ndim - 1))
    for part in weight_only.parts(values):
        rounded[part] = np.rint(values[part] / steps[part]).clip(-_MOST - 1, _MOST)
    whole = np.ascontiguousarray(np.moveaxis(rounded, 0, axis))
    return numpy_helper.from_array(whole, f"{weight.name}_quantized")


def _kind(node: Any, weight: Any, settings: Settings, types: Any) -> tuple[Any, int | None] | None:
    """The type of an operator's weight and the axis of its scales; None: as configured."""
    if node.name in settings.wide and settings.precision == "w8a16":
        return types.QInt16, None
    if node.op_type not in settings.per_channel:
        return None
    if node.op_type == "MatMul":
        return (types.QInt8, 1) if len(weight.dims) == 2 else None
    return types.QInt8, weight_only.output_axis(node)


class _Overrides(dict[str, list[dict[str, Any]]]):
    """The configuration begins with a copy, and channels have thousands of scales."""

    def __deepcopy__(self, _memo: object) -> _Overrides:
        return _Overrides({name: [dict(one) for one in rows] for name, rows in self.items()})


class _NoReader:
    """The configuration requires a reader of samples, but the ranges are known already."""

    def get_next(self) -> None:
        """Nothing to read."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def facts(model: Any, count: int) -> dict[str, Any]:
    """What the graph holds; `count`: of samples."""
    import onnx

    nodes = [node for graph in onnx_graph.graphs(model) for node in graph.node]
    counts = Counter(node.op_type for node in nodes)
    if not counts["QuantizeLinear"]:
        raise quantize_error("nothing in this graph could be quantized")
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    points = Counter(
        onnx.TensorProto.DataType.Name(types.get(node.input[2], 0)).lower()
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and len(node.input) > 2
    )
    return {
        "samples": count,
        "quantize_nodes": counts["QuantizeLinear"],
        "dequantize_nodes": counts["DequantizeLinear"],
        "types": dict(sorted(points.items())),
    }
