"""The share stage: the graphs of a decoder side by side, with one file of weights for all of them.

`prefill` and `decode` are the same model, so they have the same weights. An ONNX model can name
weights only in its own folder, so `prefill.onnx`, `decode.onnx` and `weights.data` are in one
folder. Tensors of equal bytes are stored once, whatever their names and precision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from workers import composition
from workers.composition import Component
from workers.engine import StageJob
from workers.sources import model_file, onnx_graph
from workers.sources.errors import export_error

WEIGHTS = "weights.data"
_LEAST = 1024
"""Smaller tensors stay in their graphs: shapes and scalars, which shape inference must see."""
_LARGE, _PAGE, _LINE = 64 * 1024, 4096, 64
"""Larger tensors begin at a page, so that runtimes can map them; smaller ones need not."""


@dataclass(slots=True)
class _Weights:
    """The part of the common file that is already written."""

    stream: BinaryIO
    known: dict[bytes, int] = field(default_factory=dict)
    asked: int = 0
    """Bytes of all tensors, each counted as often as it occurs."""

    def place(self, data: bytes) -> int:
        """The offset of these bytes."""
        self.asked += len(data)
        digest = hashlib.sha256(data).digest()
        if digest not in self.known:
            step = _PAGE if len(data) >= _LARGE else _LINE
            self.stream.write(bytes(-self.stream.tell() % step))
            self.known[digest] = self.stream.tell()
            self.stream.write(data)
        return self.known[digest]


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """Move the weights of all components into one file."""
    name = next((name for name in job.inputs if name != "export"), "export")
    record = composition.read(job.inputs["export"])
    if record is None:
        raise export_error("only a model with components has weights to share")
    with (job.out / WEIGHTS).open("xb") as stream:
        weights = _Weights(stream)
        for one in record.components:
            job.progress(f"sharing the weights of {one.name}")
            model = model_file.load(model_file.find(job.inputs[name], one.name) / model_file.MODEL)
            _move(model, weights)
            data = model.SerializeToString(deterministic=True)
            (job.out / file_of(one)).write_bytes(data)
            del model, data
        stored = stream.tell()
    placed = tuple(replace(one, model=file_of(one)) for one in record.components)
    composition.write(replace(record, components=placed), job.out)
    return {
        "graphs": [
            {"name": one.name, "model": file_of(one), "origin": one.model}
            for one in record.components
        ],
        "weights": {"bytes": stored, "apart": weights.asked},
    }


def file_of(component: Component) -> str:
    """The model file of a component."""
    return f"{component.name}.onnx"


def _move(model: Any, weights: _Weights) -> None:
    """Put the larger tensors of a model into the common file."""
    import onnx

    tensors = [tensor for graph in onnx_graph.graphs(model) for tensor in graph.initializer]
    for tensor in tensors:
        if onnx_graph.tensor_bytes(tensor) < _LEAST:
            continue
        data = _bytes_of(tensor)
        offset = weights.place(data)
        dims, kind, name = tuple(tensor.dims), tensor.data_type, tensor.name
        tensor.Clear()
        tensor.dims.extend(dims)
        tensor.data_type, tensor.name = kind, name
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS), ("offset", offset), ("length", len(data))):
            tensor.external_data.add(key=key, value=str(value))


def _bytes_of(tensor: Any) -> bytes:
    """The values of a tensor as external data has them: little-endian, packed."""
    from onnx import numpy_helper

    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    return bytes(numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data)
