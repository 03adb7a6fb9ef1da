"""QDQ graphs in QNN's own configuration: 8-bit weights, uint16 or uint8 activations.

Weights of convolutions and fully connected layers are int8 with a scale per channel, which the
HTP supports for exactly these; with one scale, an outlier costs all channels their resolution
(all-MiniLM-L6-v2 w8a16: cosine 0.967 with one scale per tensor, 0.998 with one per channel).
All other weights are uint8 with one scale.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.optimum_engine import calibrate, device_limits, runtime, weight_only
from workers.sources import model_file, onnx_graph
from workers.sources.errors import one_line, quantize_error

PER_CHANNEL = ("Gemm", "Conv", "ConvTranspose")
_BIASED = (*PER_CHANNEL, "LayerNormalization", "InstanceNormalization")
"""Operators whose third input is a bias."""
OUTERMOST = 1e-4
"""The share of a tensor's values that `percentile` leaves out, half of it at each end."""
_NOT_QUANTIZED = ("Cast", "QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a graph is quantized."""

    precision: str
    blocked: tuple[str, ...] = ()
    """Operators that stay in floating point."""
    calibration: str = "minmax"
    per_channel: tuple[str, ...] = PER_CHANNEL
    """Operators whose weights have a scale for each channel."""
    symmetric: bool = False
    wide: frozenset[str] = frozenset()
    """Nodes with 16 bits: in w8a16 for their weights, in w8a8 for their results."""
    floats: frozenset[str] = frozenset()
    """Nodes that stay in floating point."""

    @classmethod
    def asked(cls, precision: str, blocked: Sequence[str], params: Mapping[str, Any]) -> Settings:
        """As the parameters of the stage say."""
        return cls(
            precision,
            tuple(blocked),
            params.get("calibration", "minmax"),
            PER_CHANNEL if params.get("per_channel", True) else (),
            params.get("symmetric", False),
        )


class FloatGraph:
    """The float graph of one component, prepared to be quantized in one way or another."""

    def __init__(
        self,
        source: Path,
        sets: Sequence[Mapping[str, Any]],
        temp: Path,
        precision: str,
        progress: Callable[[str], None],
    ) -> None:
        progress("preparing the graph")
        self.folder = _prepare(source, temp, precision)
        self._sets = sets
        self._temp = temp
        self._progress = progress
        self._ranges: dict[str, Mapping[str, tuple[float, float]]] = {}

    @property
    def multiplies(self) -> bool:
        """Whether MatMul has a weight of two dimensions."""
        model = model_file.load_graph(self.folder)
        tables = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
        return any(n.op_type == "MatMul" and n.input[1] in tables for n in model.graph.node)

    def quantized(self, settings: Settings) -> Any:
        """The quantized graph."""
        found = self.ranges(settings)
        self._progress(f"quantizing to {settings.precision}")
        try:
            return _quantize(self.folder, found, settings)
        except (ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
            raise quantize_error(
                f"ONNX Runtime's quantizer failed: {type(error).__name__}: {one_line(error)}"
            ) from error

    def ranges(self, settings: Settings) -> Mapping[str, tuple[float, float]]:
        """The range of every tensor, found once by each method."""
        method = settings.calibration
        if method not in self._ranges:
            outermost = OUTERMOST if method == "percentile" else 0.0
            limits = calibrate.Limits(calibrate.DEPTH[settings.precision], outermost)
            self._ranges[method] = calibrate.ranges(
                self.folder, self._sets, self._temp / f"calibrate-{method}", limits, self._progress
            )
        return self._ranges[method]


def _prepare(source: Path, temp: Path, precision: str) -> Path:
    """Apply QNN's fusions, name every node, add the type of every tensor."""
    import onnx
    from onnxruntime.quantization.execution_providers.qnn.fusion_lpnorm import (
        FusionLpNormalization,
    )
    from onnxruntime.quantization.fusions import FusionGelu, FusionLayerNormalization
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = model_file.load(source / model_file.MODEL)
    calibrate.make_shallow(model, calibrate.DEPTH[precision])
    wrapped = ONNXModel(model)
    fusions = [FusionGelu, FusionLpNormalization]
    if onnx_graph.opset(model) >= 17:
        fusions.append(FusionLayerNormalization)
    for fusion in fusions:
        fusion(wrapped).apply()
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    wrapped.topological_sort()
    set_biases_apart(model)
    model_file.save(model, temp / "ready")
    runtime.add_types(temp / "ready", temp / "types")
    typed = model_file.load_graph(temp / "ready")
    if device_limits.rewrite(typed):
        onnx.save(typed, str(temp / "ready" / model_file.MODEL))
        runtime.add_types(temp / "ready", temp / "types-again")
    return temp / "ready"


def set_biases_apart(model: Any) -> None:
    """Give a bias a tensor of its own if another operator computes with the same one.

    Equal tensors are one in an export. Where zeros are a bias and also an operand of Add, they
    would get the type of activations, with which the HTP computes something else.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    biases = [
        (node, node.input[2])
        for node in model.graph.node
        if node.op_type in _BIASED and len(node.input) > 2 and node.input[2] in weights
    ]
    uses = Counter(name for node in model.graph.node for name in node.input)
    uses.subtract(name for _node, name in biases)
    for node, name in biases:
        if uses[name]:
            own = f"{name}/{node.name}"
            model.graph.initializer.add().CopyFrom(weights[name])
            model.graph.initializer[-1].name = own
            node.input[2] = own


def _quantize(ready: Path, found: Mapping[str, tuple[float, float]], settings: Settings) -> Any:
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorData, TensorsData
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    activation = QuantType.QUInt16 if settings.precision == "w8a16" else QuantType.QUInt8
    data = {
        name: TensorData(lowest=np.float32(low), highest=np.float32(high))
        for name, (low, high) in found.items()
    }
    model = model_file.load(ready / model_file.MODEL)
    types = sorted(
        {node.op_type for node in model.graph.node} - {*_NOT_QUANTIZED, *settings.blocked}
    )
    logging.getLogger().setLevel(logging.ERROR)  # it warns about every tensor that it skips
    config = get_qnn_qdq_config(
        str(ready / model_file.MODEL),  # as a path: measuring a model in memory fails beyond 2 GiB
        _NoReader(),
        activation_type=activation,
        weight_type=QuantType.QUInt8,
        init_overrides=_overrides(model, types, settings) or None,
        activation_symmetric=settings.symmetric,
        add_qtype_converts=bool(settings.wide) and settings.precision == "w8a8",
        op_types_to_quantize=types,
        nodes_to_exclude=sorted(settings.floats),
    )
    quantizer = QDQQuantizer(
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
    quantizer.quantize_model()
    return quantizer.model.model


def _overrides(
    model: Any, types: Sequence[str], settings: Settings
) -> dict[str, list[dict[str, Any]]]:
    """What differs from the configuration: weights with a scale per output channel or with 16
    bits, and in w8a8 results of 16 bits."""
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
            override = {"quant_type": kind[0], "symmetric": True}
            made[name] = [override if kind[1] is None else {**override, "axis": kind[1]}]
    return made


def _kind(node: Any, weight: Any, settings: Settings, types: Any) -> tuple[Any, int | None] | None:
    """The type of an operator's weight and the axis of its scales; None: as configured."""
    if node.name in settings.wide and settings.precision == "w8a16":
        return types.QInt16, None
    if node.op_type not in settings.per_channel:
        return None
    if node.op_type == "MatMul":
        return (types.QInt8, 1) if len(weight.dims) == 2 else None
    return types.QInt8, weight_only.output_axis(node)


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
