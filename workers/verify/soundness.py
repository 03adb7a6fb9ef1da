"""The ONNX checker on a model that may be as large as memory; runs in the checker's process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LARGE = 1 << 20
"""Bytes from which on a weight is put aside."""
STANDARD = {"", "ai.onnx"}
OWN_OPS = {"SimplifiedLayerNormalization"}
"""Operators of ONNX Runtime's own that it writes into the standard domain."""


def check(model: Any, path: Path, external: set[str], folder: Path) -> None:
    """The ONNX checker on the model, beside empty files of the right sizes for its weights.

    It looks at nothing but whether those are there, refuses hard links (which a package folder is
    made of), and copies twice what is inside the model: large weights are put aside from it.
    """
    import onnx

    with tempfile.TemporaryDirectory() as scratch:
        beside = Path(scratch) / path.relative_to(folder)
        beside.parent.mkdir(parents=True, exist_ok=True)
        for name in external:
            _stand_in(Path(scratch) / name, (folder / name).stat().st_size)
        aside = _put_aside(model, beside)
        plain = _without_own_operators(model)
        if external or aside:
            onnx.save(plain, beside)
            onnx.checker.check_model(beside)
        else:
            onnx.checker.check_model(plain)


def _put_aside(model: Any, beside: Path) -> bool:
    """Empty the large weights of a model that nobody reads any more; whether there were any."""
    import onnx

    large = [
        tensor
        for graph in graphs_of(model)
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
    """A file of holes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.truncate(size)


def _without_own_operators(model: Any) -> Any:
    """The same graph with ONNX Runtime's operators in a domain that the checker leaves alone."""
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


def graphs_of(model: Any) -> Iterator[Any]:
    """The main graph and every graph inside its nodes."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                pending += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
