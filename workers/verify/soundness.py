"""Runs the ONNX checker on models of any size, in the checker's process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machine.files import temporary_folder
from workers.sources.onnx_graph import STANDARD, graphs

LARGE = 1 << 20
"""Weights of at least this many bytes are replaced before the check."""
OWN_OPS = {"SimplifiedLayerNormalization"}
"""ONNX Runtime's own operators that it writes into the standard domain."""


def check(model: Any, path: Path, external: set[str], folder: Path) -> None:
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
