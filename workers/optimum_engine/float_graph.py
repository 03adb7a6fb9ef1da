"""The float graph of one component, prepared for the quantizer, and the ranges of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.optimum_engine import calibrate, device_limits, masks, qdq, smoothing
from workers.optimum_engine.qdq import Settings
from workers.sources import model_file, onnx_graph, runtime, weight_file
from workers.sources.errors import one_line, quantize_error

_BIASED = ("Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization")


class FloatGraph:
    """The float graph of one component, prepared to be quantized in one way or another."""

    def __init__(
        self,
        source: Path,
        sets: Sequence[Mapping[str, Any]],
        temp: Path,
        asked: Settings,
        progress: Callable[[str], None],
    ) -> None:
        import onnx

        progress("preparing the graph")
        self.folder = prepare(source, temp, asked.precision)
        typed = model_file.load_graph(self.folder)
        if device_limits.rewrite(typed, asked.rewrites):
            onnx.save(typed, str(self.folder / model_file.MODEL))
            runtime.add_types(self.folder, temp / "types-again")
        self._sets = sets
        self._temp = temp
        self._progress = progress
        self._smooth: Path | None = None
        self._ranges: dict[tuple[str, bool], Mapping[str, tuple[float, float]]] = {}

    @property
    def smoothable(self) -> bool:
        """Whether channels could move into weights anywhere."""
        return bool(smoothing.places(model_file.load_graph(self.folder)))

    def prepared(self, settings: Settings) -> Path:
        """The folder of the graph that is quantized with these settings."""
        if not settings.smooth:
            return self.folder
        if self._smooth is None:
            self._progress("moving channels that stand out into weights")
            self._smooth = smoothing.smooth(self.folder, self._sets, self._temp / "smooth")
        return self._smooth

    def quantized(self, settings: Settings) -> Any:
        """The quantized graph."""
        found = self.ranges(settings)
        self._progress(f"quantizing to {settings.precision}")
        try:
            return qdq.quantize(self.prepared(settings), found, settings)
        except (ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
            raise quantize_error(
                f"ONNX Runtime's quantizer failed: {type(error).__name__}: {one_line(error)}"
            ) from error

    def ranges(self, settings: Settings) -> Mapping[str, tuple[float, float]]:
        """The range of every tensor, found once by each method."""
        key = settings.calibration, settings.smooth
        if key not in self._ranges:
            precision = settings.precision
            levels, margin = qdq.LEVELS[precision], qdq.MARGIN[precision]
            limits = calibrate.Limits(masks.DEPTH[precision], levels, settings.calibration, margin)
            temp = self._temp / f"calibrate-{len(self._ranges)}"
            self._ranges[key] = calibrate.ranges(
                self.prepared(settings), self._sets, temp, limits, self._progress
            )
        return self._ranges[key]


def prepare(source: Path, temp: Path, precision: str) -> Path:
    """Apply QNN's fusions, name every node, and add the type of every tensor."""
    from onnxruntime.quantization.execution_providers.qnn.fusion_lpnorm import (
        FusionLpNormalization,
    )
    from onnxruntime.quantization.fusions import FusionGelu, FusionLayerNormalization
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = model_file.load_graph(source)
    masks.make_shallow(model, masks.DEPTH[precision], source)
    wrapped = ONNXModel(model)
    fusions = [FusionGelu, FusionLpNormalization]
    if onnx_graph.opset(model) >= 17:
        fusions.append(FusionLayerNormalization)
    for fusion in fusions:
        fusion(wrapped).apply()
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    _separate_biases(model, source)
    wrapped.topological_sort()
    model_file.save(model, temp / "ready", source)
    runtime.add_types(temp / "ready", temp / "types")
    return temp / "ready"


def _separate_biases(model: Any, source: Path) -> None:
    """Give every operator a bias of its own, of Gemm as a vector.

    The quantizer gives copies of a shared bias names that other tensors may have, and knows neither
    `1 x n` nor a single number.
    """
    import numpy as np
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    names, used = onnx_graph.tensor_names(model), set()
    for node in model.graph.node:
        bias = weights.get(node.input[2]) if len(node.input) > 2 else None
        if bias is None or node.op_type not in _BIASED:
            continue
        array = weight_file.values(bias, source)
        weight = weights.get(node.input[1])
        if node.op_type == "Gemm" and weight is not None:
            turned = any(one.name == "transB" and one.i for one in node.attribute)
            width = weight.dims[0 if turned else 1]
            if array.size == 1 or (array.size == width and array.shape[-1] == width):
                array = np.resize(array, width)
        if bias.name in used or list(array.shape) != list(bias.dims):
            name = f"{bias.name}/{node.name}"
            while name in names:
                name += "_"
            node.input[2] = name
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        names.add(node.input[2])
        used.add(node.input[2])
