"""QDQ graphs in QNN's own configuration: 8-bit weights, uint16 or uint8 activations.

Weights of convolutions and fully connected layers are int8 with a scale per channel, which the
HTP supports for exactly these; with one scale, an outlier costs all channels their resolution
(all-MiniLM-L6-v2 w8a16: cosine 0.967 with one scale per tensor, 0.998 with one per channel).
All other weights are uint8 with one scale.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.engine import StageJob
from workers.optimum_engine import calibrate, runtime, weight_only
from workers.sources import model_file, onnx_graph, samples
from workers.sources.errors import one_line, quantize_error

_PER_CHANNEL = ("Gemm", "Conv", "ConvTranspose")
OUTERMOST = 1e-4
"""The share of a tensor's values that `percentile` leaves out, half of it at each end."""
_NOT_QUANTIZED = ("Cast", "QuantizeLinear", "DequantizeLinear")


def convert(
    job: StageJob, source: Path, temp: Path, precision: str, blocked: Sequence[str]
) -> tuple[Any, dict[str, Any]]:
    """The quantized graph of one component, and facts about it."""
    sets = samples.load(job.inputs["inputs"], job.component)
    job.progress("preparing the graph")
    ready = _prepare(source, temp, precision)
    outermost = OUTERMOST if job.params.get("calibration") == "percentile" else 0.0
    limits = calibrate.Limits(calibrate.DEPTH[precision], outermost)
    found = calibrate.ranges(ready, sets, temp / "calibrate", limits, job.progress)
    job.progress(f"quantizing to {precision}")
    try:
        model = _quantize(ready, found, precision, blocked, job.params)
    except (ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise quantize_error(
            f"ONNX Runtime's quantizer failed: {type(error).__name__}: {one_line(error)}"
        ) from error
    return model, _facts(model, len(sets))


def _prepare(source: Path, temp: Path, precision: str) -> Path:
    """Apply QNN's fusions, name every node, add the type of every tensor."""
    from onnxruntime.quantization.execution_providers.qnn.fusion_lpnorm import FusionLpNormalization
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
    model_file.save(model, temp / "ready")
    runtime.add_types(temp / "ready", temp / "types")
    return temp / "ready"


def _quantize(
    ready: Path,
    found: Mapping[str, tuple[float, float]],
    precision: str,
    blocked: Sequence[str],
    params: Mapping[str, Any],
) -> Any:
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorData, TensorsData
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    activation = QuantType.QUInt16 if precision == "w8a16" else QuantType.QUInt8
    data = {
        name: TensorData(lowest=np.float32(low), highest=np.float32(high))
        for name, (low, high) in found.items()
    }
    model = model_file.load(ready / model_file.MODEL)
    types = sorted({node.op_type for node in model.graph.node} - {*_NOT_QUANTIZED, *blocked})
    logging.getLogger().setLevel(logging.ERROR)  # it warns about every tensor that it skips
    config = get_qnn_qdq_config(
        str(ready / model_file.MODEL),  # as a path: measuring a model in memory fails beyond 2 GiB
        _NoReader(),
        activation_type=activation,
        weight_type=QuantType.QUInt8,
        init_overrides=_channels(model, types) if params.get("per_channel", True) else None,
        activation_symmetric=params.get("symmetric", False),
        add_qtype_converts=False,  # for overridden activations; these are weights
        op_types_to_quantize=types,
    )
    quantizer = QDQQuantizer(
        model,
        config.per_channel,
        config.reduce_range,
        config.weight_type,
        config.activation_type,
        TensorsData(CalibrationMethod.MinMax, data),
        [],
        [],
        config.op_types_to_quantize,
        config.extra_options,
    )
    quantizer.quantize_model()
    return quantizer.model.model


def _channels(model: Any, types: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Overrides that give each weight of these operators a scale per output channel."""
    from onnxruntime.quantization import QuantType

    weights = {tensor.name for tensor in model.graph.initializer}
    axes: dict[str, set[int | None]] = {}
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name in weights:
                own = node.op_type in _PER_CHANNEL and node.op_type in types and index == 1
                axes.setdefault(name, set()).add(weight_only.output_axis(node) if own else None)
    return {
        name: [{"quant_type": QuantType.QInt8, "axis": next(iter(found)), "symmetric": True}]
        for name, found in axes.items()
        if len(found) == 1 and None not in found
    }


class _NoReader:
    """The configuration requires a reader of samples, but the ranges are known already."""

    def get_next(self) -> None:
        """Nothing to read."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def _facts(model: Any, count: int) -> dict[str, Any]:
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
