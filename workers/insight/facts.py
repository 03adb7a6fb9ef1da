"""Counts operators and open dimensions of a model file, and the candidates of passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workers.insight.candidates import candidates
from workers.insight.view import View
from workers.sources import onnx_graph


def read_facts(path: Path) -> dict[str, Any]:
    """For `flows.tune.insight`. Raises whatever onnx raises at a file that is no model."""
    model = onnx_graph.load_to_inspect(path)
    operators = onnx_graph.operators(model)
    del operators["Constant"]
    return {
        "opset": onnx_graph.opset(model),
        "nodes": operators.total(),
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "dynamic": _open_dimensions(model),
        "candidates": candidates(View(model)),
    }


def _open_dimensions(model: Any) -> list[str]:
    """`input_ids[1] sequence`, one for each dimension of an input without a size."""
    return [
        f"{value.name}[{place}] {dim or ''}".rstrip()
        for value in onnx_graph.inputs(model)
        for place, dim in enumerate(onnx_graph.dims(value))
        if not isinstance(dim, int)
    ]
