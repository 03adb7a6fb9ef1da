"""Which weights of a quantized graph its label speaks of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.plans.models import TARGETS
from tests.verification.packages import claim
from workers.verify.checker import inspect
from workers.verify.ladder import policy
from workers.verify.ladder.observed import Observed


def model(tables: int, weight: Any) -> Any:
    """Rows of 16-bit tables, added up and multiplied by a weight of that type."""
    tensors = {"s": np.float32(0.01), "z16": np.uint16(0), "zw": weight(0)}
    tensors["w"] = np.ones((4, 4), weight)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "zw"], ["dw"])]
    names = []
    for number in range(tables):
        tensors[f"t{number}"] = np.ones((8, 4), np.uint16)
        inputs, rows = [f"t{number}", "s", "z16"], f"rows{number}"
        nodes.append(helper.make_node("DequantizeLinear", inputs, [f"d{number}"]))
        nodes.append(helper.make_node("Gather", [f"d{number}", "ids"], [rows]))
        names.append(rows)
    nodes += [
        helper.make_node("Sum", names, ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "s", "z16"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z16"], ["d"]),
        helper.make_node("MatMul", ["d", "dw"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(("weight", "passed"), [(np.uint8, True), (np.int16, False)])
def test_tables_have_the_type_of_activations_and_do_not_count_as_weights(
    tmp_path: Path, weight: Any, passed: bool
) -> None:
    onnx.save(model(3, weight), str(tmp_path / "model.onnx"))
    found = inspect(tmp_path, tmp_path / "model.onnx")
    assert found["problems"] == []
    assert found["weights"]["uint16"] == 3
    told = policy.judge(
        claim("w8a16", TARGETS.get("qnn_npu")), Observed(models={"model.onnx": found})
    )
    assert told[0] is passed
    if not passed:
        assert told[1][0] == "model.onnx: is labelled w8a16, but its weights are int16"
