"""Opsets that are newer than the exporter's: the exported graph is declared to have the newer one.

From opset 20 to 23, ONNX lets existing operators take more types and gives `QuantizeLinear` and
`DequantizeLinear` more attributes; only the operators in `CHANGED` compute something else. So the
same nodes keep their meaning, and the opset only affects how later stages and runtimes treat them.
A test compares this with the schemas of ONNX.
"""

from __future__ import annotations

from typing import Any

from workers.sources import onnx_graph
from workers.sources.errors import export_error

EXPORTER = 20
"""The newest opset of the TorchScript exporter that Optimum uses."""
NEWEST = 23
CHANGED = frozenset({"GroupNormalization"})


def check(opset: int) -> None:
    """Raise `StageError` for an opset that cannot be made."""
    if opset > NEWEST:
        raise export_error(f"exports have opsets up to {NEWEST}, not {opset}", "lower the opset")


def declare(model: Any, opset: int) -> None:
    """Give a graph of the exporter's a newer opset. Raises `StageError` if that changes it."""
    from onnx import helper

    if onnx_graph.opset(model) >= opset:
        return
    changed = sorted(CHANGED & set(onnx_graph.operators(model)))
    if changed or model.functions:
        raise export_error(
            f"the graph has {changed[0] if changed else 'functions'}, which opset {opset} changes",
            f"lower the opset to {EXPORTER}",
        )
    for item in model.opset_import:
        if item.domain in onnx_graph.STANDARD:
            item.version = opset
    model.ir_version = max(model.ir_version, helper.find_min_ir_version_for(model.opset_import))
