"""What quantization loses: the distance of a graph's outputs, and which operators cause it.

Outputs are compared as verification compares them, on the same samples and with the same limits.
ONNX Runtime's CPU computes the quantized graph as it is written, so a quantized operator computes
in float between values that are rounded: an NPU differs from that by less than a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.verification import Threshold
from workers.optimum_engine import calibrate, runtime
from workers.runtimes.compare import SETS, compare
from workers.sources import model_file
from workers.verify.ladder.parity import too_far

Sample = Mapping[str, Any]
_SPARE = 0.1
"""How much nearer to 1 than the limit a cosine must be: a device rounds a little otherwise."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the outputs of a graph are from the float graph's."""

    cosine: float
    """Of the worst output; -1: its values are no numbers."""
    fault: str = ""
    """What parity has against it; empty: nothing."""


def outputs(folder: Path, sets: Sequence[Sample]) -> list[dict[str, Any]]:
    """What the graph in a folder computes from the samples that verification takes."""
    ready = runtime.session(folder / model_file.MODEL)
    return [runtime.run(ready, sample) for sample in sets[:SETS]]


def limit_of(params: Mapping[str, float]) -> Threshold:
    """The limit of a stage's parameters, with something to spare."""
    cosine = params["cosine"]
    return Threshold(cosine + _SPARE * (1 - cosine), params.get("max_abs"))


def distance(
    found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], limit: Threshold
) -> Distance:
    """The worst output over all samples."""
    rows = compare(found, wanted)
    faults = [f"{name}: {text}" for name, one in rows.items() if (text := too_far(one, limit))]
    cosines = [one.get("cosine", one.get("agree", -1.0)) for one in rows.values() if one]
    return Distance(min(cosines, default=1.0), faults[0] if faults else "")


def by_operator(ready: Path, quantized: Path, sample: Sample, temp: Path) -> dict[str, float]:
    """What every operator with a weight adds to the relative error of its result.

    `ready` is the float graph that `quantized` was made from: their tensors have the same names.
    """
    model = model_file.load_graph(ready)
    tensors = calibrate.float_tensors(model)
    inputs = {value.name for value in model.graph.input}
    errors: dict[str, float] = {}
    sessions = [
        runtime.session(_opened(folder, tensors.keys() - inputs, temp / f"opened-{place}"))
        for place, folder in enumerate((ready, quantized))
    ]
    feeds = {name: value for name, value in sample.items() if name in inputs}
    for names in calibrate.chunks(tensors, inputs):
        wanted, found = (one.run(names, feeds) for one in sessions)
        errors |= {name: _error(*pair) for name, *pair in zip(names, found, wanted, strict=True)}
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        node.name: errors.get(node.output[0], 0.0)
        - max((errors.get(name, 0.0) for name in node.input), default=0.0)
        for node in model.graph.node
        if len(node.input) > 1 and node.input[1] in weights and node.output[0] in errors
    }


def _opened(folder: Path, names: Iterable[str], temp: Path) -> Path:
    """The graph with these tensors among its outputs."""
    import onnx

    model = model_file.load_graph(folder)
    present = {value.name for value in model.graph.output}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in sorted(set(names) - present)
    )
    return model_file.save_graph(model, folder, temp)


def _error(found: Any, wanted: Any) -> float:
    import numpy as np

    length = float(np.linalg.norm(wanted))
    return float(np.linalg.norm(found - wanted)) / length if length else 0.0
