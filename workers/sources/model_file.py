"""ONNX files: loaded whole, written clean, with external data wherever protobuf's limit is near."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from workers.composition import Ports
from workers.sources.errors import export_error
from workers.sources.weights import SIDE_FILES, matching

MODEL = "model.onnx"
EXTERNAL = "model.onnx.data"
EXTERNAL_THRESHOLD = 1024**3
"""Bytes of weights from which they get a file of their own; protobuf ends at twice that."""
_SMALL = 1024
"""Tensors below this stay inside: shapes and scalars, which shape inference must see."""

_QUANTIZED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantize",
    "QLinear",
    "QGemm",
    "QAttention",
)
_CONTRIB = ("com.microsoft", "com.microsoft.nchwc", "com.microsoft.experimental")


def find(folder: Path, component: str) -> Path:
    """The folder that holds a component's model, in an input folder of a stage."""
    for candidate in (folder / component, folder):
        if (candidate / MODEL).is_file():
            return candidate
    raise export_error(f"no {MODEL} for component '{component or '.'}' among the stage's inputs")


def load(file: Path) -> Any:
    """The model with all its weights in memory.

    Not with onnx's own reader of external data: it refuses a file with several hard links, which
    is what a stage's inputs are.
    """
    import onnx

    model = onnx.load(str(file), load_external_data=False)
    for tensor in tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.raw_data = _external(file.parent, tensor)
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return model


def _external(folder: Path, tensor: Any) -> bytes:
    info = {item.key: item.value for item in tensor.external_data}
    location = info.get("location", "")
    if Path(location).name != location or location in {"", ".."}:
        raise export_error(f"the weights of '{tensor.name}' are outside the model's folder")
    size = int(info.get("length") or _tensor_bytes(tensor))
    with (folder / location).open("rb") as stream:
        stream.seek(int(info.get("offset") or 0))
        data: bytes = stream.read(size)
    if len(data) != size or size != _tensor_bytes(tensor):
        raise export_error(f"the weights of '{tensor.name}' in {location} are not whole")
    return data


def save(model: Any, folder: Path) -> None:
    """Write a model as `model.onnx`, free of traces of this machine, in one way only."""
    import onnx

    clean(model)
    folder.mkdir(parents=True, exist_ok=True)
    external = weight_bytes(model) > EXTERNAL_THRESHOLD
    onnx.save(
        model,
        str(folder / MODEL),
        save_as_external_data=external,
        all_tensors_to_one_file=True,
        location=EXTERNAL if external else None,
        size_threshold=_SMALL,
        convert_attribute=True,
    )


def link(source: Path, folder: Path, put: Any) -> Path:
    """Make a model and its external data appear in another folder, through `put(from, to)`."""
    for name in (MODEL, EXTERNAL):
        if (source / name).is_file():
            put(source / name, folder / name)
    return folder / MODEL


def copy_side_files(source: Path, target: Path) -> list[str]:
    """Hand on the small text files beside a model; only those that we know belong there."""
    names = matching(
        (path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()),
        SIDE_FILES,
    )
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    return names


def clean(model: Any) -> None:
    """Drop what does not compute: doc strings (source paths), metadata, unused domains."""
    for graph in graphs(model):
        graph.doc_string = ""
        del graph.metadata_props[:]
        for item in (*graph.node, *graph.value_info, *graph.input, *graph.output):
            item.doc_string = ""
            del item.metadata_props[:]
        for tensor in graph.initializer:
            tensor.doc_string = ""
            del tensor.metadata_props[:]
    model.doc_string = ""
    del model.metadata_props[:]
    used = {node.domain for graph in graphs(model) for node in graph.node} | {""}
    used |= {node.domain for function in model.functions for node in function.node}
    kept = sorted(
        {
            item.domain.replace("ai.onnx", "")
            if item.domain == "ai.onnx"
            else item.domain: item.version
            for item in model.opset_import
        }.items()
    )
    del model.opset_import[:]
    for domain, version in kept:
        if domain in used:
            model.opset_import.add(domain=domain, version=version)


def set_apart(model: Any, known: Container[str]) -> None:
    """Rename the tensors that an optimization invented.

    ONNX Runtime counts its new names from zero in every session: a graph that it wrote cannot be
    loaded by it again once the two generations of `gemm_input_shape_token_3` meet.
    """
    ports = {value.name for value in (*model.graph.input, *model.graph.output)}
    renamed = {
        name: f"optimized/{name}"
        for name in tensor_names(model)
        if name and name not in ports and name not in known and not name.startswith("optimized/")
    }
    for graph in graphs(model):
        for tensor in graph.initializer:
            tensor.name = renamed.get(tensor.name, tensor.name)
        for value in (*graph.value_info, *graph.output):
            value.name = renamed.get(value.name, value.name)
        for node in graph.node:
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    if name in renamed:
                        names[index] = renamed[name]


def tensor_names(model: Any) -> set[str]:
    """Every name of a tensor in a graph."""
    names = {tensor.name for graph in graphs(model) for tensor in graph.initializer}
    return names | {name for graph in graphs(model) for node in graph.node for name in node.output}


def graphs(model: Any) -> Iterator[Any]:
    """The main graph and every graph inside its nodes (If, Loop, Scan)."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g)
                pending.extend(attribute.graphs)


def weight_bytes(model: Any) -> int:
    """Bytes of all initializers and constants, roughly what the file will take."""
    return sum(map(_tensor_bytes, tensors(model)))


def tensors(model: Any) -> Iterator[Any]:
    """Every weight and constant of a model."""
    for graph in graphs(model):
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _tensor_bytes(tensor: Any) -> int:
    # Not ByteSize(): protobuf refuses to measure what is beyond its 2 GiB.
    from onnx import helper

    itemsize = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims) * itemsize)


def opset(model: Any) -> int:
    """The version of the standard operator set."""
    return next(int(item.version) for item in model.opset_import if item.domain in {"", "ai.onnx"})


def operators(model: Any) -> Counter[str]:
    """How many nodes of each type; those of other domains with the domain before the name."""
    counts: Counter[str] = Counter()
    for graph in graphs(model):
        for node in graph.node:
            standard = node.domain in {"", "ai.onnx"}
            counts[node.op_type if standard else f"{node.domain}:{node.op_type}"] += 1
    return counts


def contrib(model: Any) -> Counter[str]:
    """The operators that only ONNX Runtime knows."""
    return Counter(
        {name: n for name, n in operators(model).items() if name.split(":")[0] in _CONTRIB}
    )


def quantized(model: Any) -> bool:
    """Whether a graph computes with integers in place of floats."""
    return any(
        name.startswith(_QUANTIZED) or name.endswith("Integer")
        for name in (full.rpartition(":")[2] for full in operators(model))
    )


def unknown(model: Any) -> list[str]:
    """Operators under the standard's name that the standard does not have at this opset.

    ONNX Runtime keeps a few of its own there; no other runtime, and no checker, knows them.
    """
    from onnx import defs

    version = opset(model)
    names = {
        node.op_type
        for graph in graphs(model)
        for node in graph.node
        if node.domain in {"", "ai.onnx"}
    }
    return sorted(name for name in names if not _in_standard(defs, name, version))


def _in_standard(defs: Any, name: str, version: int) -> bool:
    try:
        return not defs.get_schema(name, max_inclusive_version=version, domain="").deprecated
    except defs.SchemaError:
        return False


def ports(model: Any) -> Ports:
    """What goes in and out of a graph; weights that are listed as inputs do not count."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return Ports(
        tuple(value.name for value in model.graph.input if value.name not in weights),
        tuple(value.name for value in model.graph.output),
    )


def facts(model: Any) -> dict[str, Any]:
    """What every stage tells of the graph it made."""
    counts = operators(model)
    return {
        "opset": opset(model),
        "ir": int(model.ir_version),
        "nodes": counts.total(),
        "contrib_nodes": contrib(model).total(),
    }
