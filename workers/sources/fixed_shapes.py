"""Graphs whose dimensions are fixed to those of given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.sources import onnx_graph


def fix(model: Any, inputs: Mapping[str, Any]) -> None:
    """Give a graph's inputs the shapes of these arrays and remove all other known shapes.

    The names of dimensions are not reliable (`past + current`), so the arrays decide; ONNX Runtime
    infers inner and output shapes again when it writes the graph.
    """
    for value in model.graph.input:
        if value.name in inputs:
            _set_shape(value, inputs[value.name].shape)
    del model.graph.value_info[:]
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()


def fix_outputs(model: Any, outputs: Mapping[str, Any]) -> None:
    """Give a graph's outputs the shapes that a run produced."""
    for value in model.graph.output:
        if value.name in outputs:
            _set_shape(value, outputs[value.name].shape)


def dynamic(model: Any) -> list[str]:
    """The inputs and outputs that still have an open dimension."""
    return [
        value.name
        for value in (*model.graph.input, *model.graph.output)
        if onnx_graph.is_open(value)
    ]


def _set_shape(value: Any, shape: tuple[int, ...]) -> None:
    dims = value.type.tensor_type.shape
    del dims.dim[:]
    for size in shape:
        dims.dim.add(dim_value=size)
