"""Graphs of a decoder side by side, with one file of weights for all of them.

`prefill` and `decode` are the same model, so they have the same weights. An ONNX model can name
weights only in its own folder, so `prefill.onnx`, `decode.onnx` and `weights.data` are in one
folder: in the export, and in what the share stage makes of the components of later stages. Tensors
of equal bytes are stored once, whatever their names and precision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workers import composition
from workers.composition import Composition
from workers.engine import StageJob
from workers.sources import model_file, onnx_graph, weight_file
from workers.sources.errors import export_error

WEIGHTS = "weights.data"
_LEAST = 1024
"""Smaller tensors stay in their graphs: shapes and scalars, which shape inference must see."""
_LARGE, _PAGE, _LINE = 64 * 1024, 4096, 64
"""Larger tensors begin at a page, so that runtimes can map them; smaller ones need not."""


@dataclass(slots=True)
class SharedWeights:
    """The graphs in a folder and the part of their weights that is already written."""

    folder: Path
    known: dict[bytes, int] = field(default_factory=dict)
    """The digest of a tensor's bytes -> their offset."""
    asked: int = 0
    """Bytes of all tensors, each counted as often as it occurs."""
    stored: int = 0

    def add(self, model: Any, component: str, source: Path) -> None:
        """Write the graph of a component, which was loaded without its weights from `source`."""
        model_file.clean(model)
        for tensor in onnx_graph.tensors(model):
            if onnx_graph.tensor_bytes(tensor) < _LEAST:
                weight_file.take_in(tensor, source)
        for graph in onnx_graph.graphs(model):
            for tensor in graph.initializer:
                if onnx_graph.tensor_bytes(tensor) >= _LEAST:
                    self._place(tensor, source)
        data = model.SerializeToString(deterministic=True)
        (self.folder / model_file.shared(component)).write_bytes(data)

    def _place(self, tensor: Any, source: Path) -> None:
        """Put the bytes of a tensor into the common file, if they are not there yet."""
        size = onnx_graph.tensor_bytes(tensor)
        digest = hashlib.sha256()
        for piece in weight_file.pieces(tensor, source):
            digest.update(piece)
        if digest.digest() not in self.known:
            step = _PAGE if size >= _LARGE else _LINE
            with (self.folder / WEIGHTS).open("ab") as stream:
                stream.write(bytes(-stream.tell() % step))
                self.known[digest.digest()] = stream.tell()
                stream.writelines(weight_file.pieces(tensor, source))
                self.stored = stream.tell()
        weight_file.refer(tensor, WEIGHTS, self.known[digest.digest()], size)
        self.asked += size


def run(job: StageJob, _temp: Path) -> Mapping[str, Any]:
    """Move the weights of all components into one file."""
    name = next((name for name in job.inputs if name != "export"), "export")
    record = composition.read(job.inputs["export"])
    if record is None:
        raise export_error("only a model with components has weights to share")
    weights = SharedWeights(job.out)
    for one in record.components:
        job.progress(f"sharing the weights of {one.name}")
        file = model_file.find(job.inputs[name], one.name)
        weights.add(onnx_graph.load(file), one.name, file.parent)
    found = side_by_side(record)
    composition.write(found, job.out)
    return {
        "graphs": [
            {"name": one.name, "model": one.model, "origin": before.model}
            for one, before in zip(found.components, record.components, strict=True)
        ],
        "weights": {"bytes": weights.stored, "apart": weights.asked},
    }


def side_by_side(record: Composition) -> Composition:
    """The record of a model whose graphs share their weights."""
    placed = (replace(one, model=model_file.shared(one.name)) for one in record.components)
    return replace(record, components=tuple(placed))
