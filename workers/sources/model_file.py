"""ONNX files: read with all weights, written clean, external data near the limit of protobuf."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

from machine import files
from workers.sources import onnx_graph, weight_file
from workers.sources.errors import export_error
from workers.sources.links import own_file
from workers.sources.weights import SIDE_FILES, matching

MODEL = "model.onnx"
EXTERNAL = "model.onnx.data"
EXTERNAL_THRESHOLD = 1024**3
"""Models with more bytes of weights keep them in a file of their own; protobuf's limit is twice
that."""


def shared(component: str) -> str:
    """The file of a component whose weights are in one file with those of others."""
    return f"{component}.onnx"


def find(folder: Path, component: str) -> Path:
    """The file of a component's model, in an input folder of a stage."""
    for file in (folder / component / MODEL, folder / shared(component), folder / MODEL):
        if file.is_file():
            return file
    raise export_error(f"no {MODEL} for component '{component or '.'}' among the stage's inputs")


def folder_of(folder: Path, component: str, temp: Path) -> Path:
    """A folder with nothing but this component as `model.onnx`: for one that shares its weights,
    a new folder of links."""
    file = find(folder, component)
    if file.name == MODEL:
        return file.parent
    alone = temp / "alone"
    files.place(file, alone / MODEL)
    _link_weights(load_graph(alone), file.parent, alone)
    return alone


def load_graph(folder: Path) -> Any:
    """The model in a folder without the weights that lie beside it."""
    return onnx_graph.load(folder / MODEL)


def load(file: Path) -> Any:
    """The model with all its weights in memory."""
    model = onnx_graph.load(file)
    for tensor in onnx_graph.all_tensors(model):
        weight_file.take_in(tensor, file.parent)
    return model


def save(model: Any, folder: Path, source: Path | None = None) -> None:
    """Write a model as `model.onnx`: the same bytes on every machine.

    `source`: the folder of the weights that it was loaded without.
    """
    import onnx

    clean(model)
    folder.mkdir(parents=True, exist_ok=True)
    large = onnx_graph.weight_bytes(model) > EXTERNAL_THRESHOLD
    if source is not None:
        # What is neither an initializer nor a constant stays in the graph.
        read = onnx_graph.hidden_tensors if large else onnx_graph.all_tensors
        for tensor in read(model):
            weight_file.take_in(tensor, source)
    if large:
        weight_file.write(model, folder / EXTERNAL, source)
    onnx.save(model, str(folder / MODEL))


def save_graph(model: Any, source: Path, folder: Path) -> Path:
    """Write a graph that was loaded without its weights; link the weights of `source` beside it.

    For graphs that are only run or inspected: `save` is how a stage hands on a model.
    """
    import onnx

    folder.mkdir()
    onnx.save(model, str(folder / MODEL))
    _link_weights(model, source, folder)
    return folder / MODEL


def _link_weights(model: Any, source: Path, folder: Path) -> None:
    found = map(onnx_graph.beside, onnx_graph.all_tensors(model))
    for name in sorted({where.location for where in found if where}):
        files.place(own_file(source, name), folder / name)


def copy_side_files(source: Path, target: Path) -> None:
    """Copy the known small files beside a model to the next stage's output."""
    names = (path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file())
    for name in matching(names, SIDE_FILES):
        files.copy_file(own_file(source, name), target / name)


def clean(model: Any) -> None:
    """Remove what does not compute: doc strings (source paths), metadata, unused domains."""
    described = [model]
    for graph in onnx_graph.graphs(model):
        described += [graph, *graph.node, *graph.value_info, *graph.input, *graph.output]
        described += graph.initializer
    for item in described:
        item.doc_string = ""
        del item.metadata_props[:]
    used = {node.domain for graph in onnx_graph.graphs(model) for node in graph.node} | {""}
    used |= {node.domain for function in model.functions for node in function.node}
    versions = {
        "" if item.domain == "ai.onnx" else item.domain: item.version for item in model.opset_import
    }
    del model.opset_import[:]
    for domain, version in sorted(versions.items()):
        if domain in used:
            model.opset_import.add(domain=domain, version=version)


def set_apart(model: Any, known: Container[str]) -> None:
    """Rename the tensors that an optimization invented.

    ONNX Runtime numbers its new names from zero in every session: it cannot load a graph again in
    which two generations of `gemm_input_shape_token_3` meet.
    """
    ports = {value.name for value in (*model.graph.input, *model.graph.output)}
    renamed = {
        name: f"optimized/{name}"
        for name in onnx_graph.tensor_names(model)
        if name and name not in ports and name not in known and not name.startswith("optimized/")
    }
    for graph in onnx_graph.graphs(model):
        for tensor in graph.initializer:
            tensor.name = renamed.get(tensor.name, tensor.name)
        for value in (*graph.value_info, *graph.output):
            value.name = renamed.get(value.name, value.name)
        for node in graph.node:
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    if name in renamed:
                        names[index] = renamed[name]
