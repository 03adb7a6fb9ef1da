"""Graphs of the exporter that are declared to be of a newer opset."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import helper

from tests.engines.graphs import matmul, model
from workers.engine import StageError
from workers.optimum_engine import export


def shape_of(schema: Any) -> tuple[Any, ...]:
    """What an operator takes and gives, without the types of tensors."""
    attributes = {
        name: (one.type.name, one.required, str(one.default_value))
        for name, one in schema.attributes.items()
    }
    ports = [(one.name, one.option.name) for one in (*schema.inputs, *schema.outputs)]
    return tuple(ports), attributes


def test_what_is_said_of_the_newer_opsets_is_true() -> None:
    changed = set()
    for name in {one.name for one in onnx.defs.get_all_schemas() if one.domain == ""}:
        try:
            old, new = (
                onnx.defs.get_schema(name, max_inclusive_version=version, domain="")
                for version in (export.EXPORTER, export.NEWEST)
            )
        except onnx.defs.SchemaError:
            continue  # an operator that is new
        (ports, attributes), (newer_ports, newer) = shape_of(old), shape_of(new)
        kept = {key: value for key, value in newer.items() if key in attributes}
        added = newer.keys() - attributes.keys()
        quantizes = name in {"QuantizeLinear", "DequantizeLinear"}
        if ports != newer_ports or kept != attributes or (added and not quantizes):
            changed.add(name)
    assert changed == export.CHANGED


def test_a_graph_gets_the_newer_opset_and_a_version_that_can_hold_it() -> None:
    made = matmul()
    del made.opset_import[:]
    made.opset_import.append(helper.make_opsetid("", export.EXPORTER))
    export.declare_opset(made, 21)
    assert [(one.domain, one.version) for one in made.opset_import] == [("", 21)]
    assert made.ir_version == 10
    onnx.checker.check_model(made)
    export.declare_opset(made, 19)
    assert made.opset_import[0].version == 21


def test_what_would_change_is_refused() -> None:
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    with pytest.raises(StageError, match="has GroupNormalization, which opset 21 changes") as told:
        export.declare_opset(model([node], {}), 21)
    assert told.value.hint == "lower the opset to 20"
    export.check_opset(23)
    with pytest.raises(StageError, match="exports have opsets up to 23, not 24"):
        export.check_opset(24)
