"""Inspects the models of a package without running them, in a host process of its own.

A service for `workers.host.child`: `inspect` describes a model file (validity, external data,
operators, types of weights, QDQ) and judges nothing. The same process serves ONNX Runtime's own
runtimes, so one warm process is enough for most cells. The owner's process never imports onnx.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine.files import temporary_folder
from workers.engine import StageError, version
from workers.host.child import give_back
from workers.runtimes.ort import OrtService
from workers.sources.errors import one_line
from workers.sources.links import leads_out, own_file
from workers.sources.onnx_graph import (
    FOUR_BITS,
    STANDARD,
    all_tensors,
    attributes,
    dims,
    external,
    graphs,
    inputs,
    is_context,
    is_open,
    load,
    tensor_bytes,
    tensors,
)
from workers.sources.onnx_graph import nodes as every_node
from workers.verify.taken import taken

TOOLS = ("onnx", "onnxruntime", "onnxruntime-windowsml", "numpy")
Answer = dict[str, Any]
_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


class Checker(OrtService):
    """Operations: `versions`, `inspect`, `contexts`, `graph`, `taken`, `facts`, and those of a
    runtime."""

    def call(self, op: str, args: dict[str, Any], progress: Callable[[str], None]) -> Any:
        """Answer one request."""
        if op == "versions":
            return {name: text for name in TOOLS if (text := version(name))}
        if op == "inspect":
            progress("inspecting")
            folder = Path(args["folder"])
            found = {}
            for model in args["models"]:
                found[model] = inspect(folder, folder / model)
                give_back()
            return found
        if op == "contexts":
            folder = Path(args["folder"])
            return {name: references(folder, name) for name in args["models"]}
        if op == "taken":
            return taken(Path(args["file"]), args["assigned"])
        if op in {"graph", "facts"}:
            from workers.measure.insight import read_facts
            from workers.measure.trace.graph import read_graph

            return (read_graph if op == "graph" else read_facts)(Path(args["file"]))
        return super().call(op, args, progress)


def references(folder: Path, name: str) -> Answer:
    """The inputs, context binaries and tensor files of a model. Raises for tensors outside."""
    model = load(folder / name)
    files = {_external(folder, folder / name, tensor) for tensor in all_tensors(model)} - {""}
    shapes = {value.name: dims(value) for value in inputs(model)}
    return {**read_contexts(model, folder, name), "external": sorted(files), "inputs": shapes}


def inspect(folder: Path, path: Path) -> Answer:
    """The contents of a model file; `problems` are the reasons why it is not a valid model."""
    answer: Answer = {"problems": [], "external": []}
    try:
        model = load(path)
        weights = list(tensors(model))
        files = {_external(folder, path, tensor) for tensor in all_tensors(model)} - {""}
        answer["external"] = sorted(files)
        unreadable = _read(model, path, weights, answer)
        context = read_contexts(model, folder, path.relative_to(folder).as_posix())
        answer["contexts"] = context["nodes"]
        answer["problems"] += context["problems"]
        check_model(model, path, files, folder)
        if unreadable is not None:  # the checker would have explained more
            raise unreadable
    # The libraries raise anything at all; whatever it is, the model is not valid.
    except Exception as error:  # noqa: BLE001
        answer["problems"].append(one_line(error))
    return answer


def _read(model: Any, path: Path, weights: list[Any], answer: Answer) -> Exception | None:
    try:
        answer |= _graph(model)
        answer |= _weights(path, weights)
    # Returned, and raised only if the checker has nothing to say about it.
    except Exception as error:  # noqa: BLE001
        return error
    return None


def _graph(model: Any) -> Answer:
    nodes = [node for graph in graphs(model) for node in graph.node]
    return {
        "ir": int(model.ir_version),
        "opsets": {item.domain or "ai.onnx": int(item.version) for item in model.opset_import},
        "ops": dict(Counter(map(_op, nodes))),
        "open_inputs": [value.name for value in inputs(model) if is_open(value)],
        **_qdq(model, nodes),
    }


def _op(node: Any) -> str:
    own = node.domain in STANDARD and node.op_type in OWN_OPS
    domain = "com.microsoft" if own else node.domain
    return node.op_type if domain in STANDARD else f"{domain}:{node.op_type}"


def _qdq(model: Any, nodes: list[Any]) -> Answer:
    """The types of quantized activations, of weights and of those that are multiplied by, and the
    operators that use them."""
    initializers = [item for graph in graphs(model) for item in graph.initializer]
    types = {item.name: _kind(item.data_type) for item in initializers} | _constants(nodes)
    # One number, as in an activation function, has the type of the activations beside it.
    scalars = {item.name for item in initializers if math.prod(item.dims) <= 1}
    activations: Counter[str] = Counter()
    weights: Counter[str] = Counter()
    factors: Counter[str] = Counter()
    multiplied = {name for node in nodes if node.op_type in _PRODUCTS for name in node.input}
    dequantized = set()
    for node in nodes:
        if node.op_type == "QuantizeLinear":
            activations[_zero_type(node, types)] += 1
        elif node.op_type == "MatMulNBits":
            weights[f"uint{attributes(node).get('bits', 4)}"] += 1
        elif node.op_type == "DequantizeLinear":
            dequantized.add(node.output[0])
            if node.input[0] in types and node.input[0] not in scalars:
                weights[types[node.input[0]]] += 1
                factors[types[node.input[0]]] += node.output[0] in multiplied
    lowered = Counter(
        _op(node)
        for node in nodes
        if node.op_type not in {"QuantizeLinear", "DequantizeLinear"}
        and any(name in dequantized for name in node.input)
    )
    return {
        "activations": dict(activations),
        "weights": dict(weights),
        "factors": dict(+factors),
        "lowered": dict(lowered),
    }


def _zero_type(node: Any, types: dict[str, str]) -> str:
    if len(node.input) > 2 and node.input[2] in types:
        return types[node.input[2]]
    given = attributes(node).get("output_dtype", 0)
    return _kind(given) if given else "uint8"


def _constants(nodes: list[Any]) -> dict[str, str]:
    return {
        node.output[0]: _kind(value.data_type)
        for node in nodes
        if node.op_type == "Constant" and (value := attributes(node).get("value")) is not None
    }


def _kind(number: int) -> str:
    import onnx

    return str(onnx.TensorProto.DataType.Name(number)).lower()


def _weights(path: Path, weights: list[Any]) -> Answer:
    """Bytes by type, and the float tensors with NaN or infinity.

    One pass, one tensor in memory at a time.
    """
    import numpy as np

    sizes: Counter[str] = Counter()
    nan, infinite = [], []
    for tensor in weights:
        array = _array(path, tensor)
        sizes[_kind(tensor.data_type)] += tensor_bytes(tensor)
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            continue
        if array.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        finite = np.isfinite(array)
        if finite.all():
            continue
        if np.isnan(array).any():
            nan.append(tensor.name)
        # Zeros and infinities alone are a mask; a single infinity fills one.
        elif array.size > 1 and np.any(array[finite]):
            infinite.append(tensor.name)
    return {"bytes": dict(sizes), "nan": nan[:5], "infinite": infinite[:5]}


def _array(path: Path, tensor: Any) -> Any:
    """A tensor's values; external ones are mapped, not copied."""
    import numpy as np
    import onnx

    where = external(tensor)
    if where is None:
        return onnx.numpy_helper.to_array(tensor)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if not all(tensor.dims):
        return np.empty(tuple(tensor.dims), dtype)
    if tensor.data_type in FOUR_BITS:  # no NaN or infinity
        return np.empty(0, np.uint8)
    file = path.parent / where.location
    return np.memmap(file, dtype, "r", where.offset, tuple(tensor.dims) or (1,))


def _external(folder: Path, model: Path, tensor: Any) -> str:
    """Check where a tensor's bytes are; the name of their file, empty if they are in the model."""
    where = external(tensor)
    if where is None:
        return ""
    name = where.location
    path = model.parent / name
    if leads_out(name):
        raise ValueError(f"external data of {tensor.name} are outside the package: {name}")
    try:
        own_file(folder, path.relative_to(folder).as_posix())
    except StageError as error:
        raise ValueError(f"external data of {tensor.name}: {error}") from None
    if not path.is_file():
        raise ValueError(f"external data of {tensor.name} are missing: {name}")
    if where.offset + where.length > path.stat().st_size:
        raise ValueError(f"external data of {tensor.name} are cut off: {name}")
    return path.relative_to(folder).as_posix()


LARGE = 1 << 20
"""Weights of at least this many bytes are replaced before the check_model."""
OWN_OPS = {"SimplifiedLayerNormalization"}
"""ONNX Runtime's own operators that it writes into the standard domain."""


def check_model(model: Any, path: Path, external: set[str], folder: Path) -> None:
    """Check the model with empty files of the right sizes in the place of its weights.

    The checker only tests whether those files exist, refuses hard links (of which a package folder
    consists), and copies twice what is inside the model. Large weights are therefore removed first.
    """
    import onnx

    with temporary_folder("modelmill-") as scratch:
        beside = scratch / path.relative_to(folder)
        beside.parent.mkdir(parents=True, exist_ok=True)
        for name in external:
            _stand_in(scratch / name, (folder / name).stat().st_size)
        removed = _remove_weights(model, beside)
        plain = _without_own_operators(model)
        if external or removed:
            onnx.save(plain, beside)
            onnx.checker.check_model(beside)
        else:
            onnx.checker.check_model(plain)


def _remove_weights(model: Any, beside: Path) -> bool:
    """Replace the large weights of a model by empty files; whether it had any."""
    import onnx

    large = [
        tensor
        for graph in graphs(model)
        for tensor in graph.initializer
        if len(tensor.raw_data) >= LARGE
    ]
    for number, tensor in enumerate(large):
        file = beside.with_name(f"{beside.name}.{number}.weights")
        _stand_in(file, len(tensor.raw_data))
        onnx.external_data_helper.set_external_data(tensor, file.name)
        tensor.ClearField("raw_data")
    return bool(large)


def _stand_in(file: Path, size: int) -> None:
    """A sparse file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.truncate(size)


def _without_own_operators(model: Any) -> Any:
    """The same graph with ONNX Runtime's operators in a domain that the checker ignores."""
    import onnx

    if not any(node.op_type in OWN_OPS and node.domain in STANDARD for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        if node.op_type in OWN_OPS and node.domain in STANDARD:
            node.domain = "com.microsoft"
    if not any(item.domain == "com.microsoft" for item in changed.opset_import):
        changed.opset_import.add(domain="com.microsoft", version=1)
    return changed


COMPATIBILITY = "ep_compatibility_info."


def read_contexts(model: Any, folder: Path, name: str) -> dict[str, Any]:
    """The EPContext nodes of a model, the binaries they name, and what is wrong with those."""
    nodes = [_node(node) for node in every_node(model) if is_context(node)]
    problems: list[str] = []
    binaries: list[str] = []
    for node in nodes:
        if node["embedded"] or (not node["main"] and not node["binary"]):
            continue
        problem = _problem(folder, (folder / name).parent, node["binary"])
        if problem:
            problems.append(f"context {node['partition'] or node['name']}: {problem}")
        else:
            path = (folder / name).parent / node["binary"]
            binaries.append(path.relative_to(folder).as_posix())
    return {
        "nodes": [{key: node[key] for key in ("partition", "main", "embedded")} for node in nodes],
        "binaries": list(dict.fromkeys(binaries)),
        "compatibility": {
            item.key.removeprefix(COMPATIBILITY): item.value
            for item in model.metadata_props
            if item.key.startswith(COMPATIBILITY)
        },
        "problems": problems,
    }


def _node(node: Any) -> dict[str, Any]:
    given = attributes(node)
    embedded = bool(given.get("embed_mode", 1))
    return {
        "name": node.name,
        "partition": _text(given.get("partition_name", b"")),
        "main": bool(given.get("main_context", 1)),
        "embedded": embedded,
        "binary": "" if embedded else _text(given.get("ep_cache_context", b"")),
    }


def _text(value: bytes) -> str:
    """Empty for what is not UTF-8: no file is called that."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def _problem(folder: Path, beside: Path, binary: str) -> str:
    """Why a binary cannot be used; empty: it can."""
    if not binary:
        return "it names no binary, or not in UTF-8"
    path = beside / binary
    if leads_out(binary):
        return f"its binary {binary} is outside the package"
    try:
        own_file(folder, path.relative_to(folder).as_posix())
    except StageError as error:
        return f"its binary is outside the package: {error}"
    if not path.is_file():
        return f"its binary {binary} is missing"
    return ""
