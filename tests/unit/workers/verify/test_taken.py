"""How much of a graph a provider has taken: computing nodes, and the weights that they read."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from flows.observe.evidence import partly_taken
from matrix.verification import RUNGS
from workers.runtimes.runtime import QNN, Runtime
from workers.session import CPU
from workers.verify.ladder.levels import Demand
from workers.verify.ladder.observed import RuntimeRun
from workers.verify.taken import taken

NPU = Runtime("qnn", QNN, "npu", "1")
Rows = list[list[str]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table of 400 bytes that ids look up, a transposed matrix of 100, and sizes from shapes."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["rows"], "look up"),
        node("Shape", ["rows"], ["shape"], "shape"),
        node("Gather", ["shape", "zero"], ["size"], "size"),
        node("Mul", ["size", "two"], ["twice"], "twice"),
        node("Transpose", ["matrix"], ["turned"], "turn", perm=[1, 0]),
        node("MatMul", ["rows", "turned"], ["product"], "product"),
        node("Relu", ["product"], ["y"], "relu"),
    ]
    weights = {
        "table": np.zeros((20, 5), np.float32), "matrix": np.zeros((5, 5), np.float32),
        "zero": np.zeros(1, np.int64), "two": np.full(1, 2, np.int64),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


SIZES: Rows = [["Shape", "shape"], ["Gather", "size"], ["Mul", "twice"]]


def run(file: Path, assigned: dict[str, Rows]) -> RuntimeRun:
    answer = {
        "nodes": {name: len(rows) for name, rows in assigned.items()},
        "taken": taken(file, assigned),
    }
    return RuntimeRun(NPU, own=True, models={"model.onnx": answer})


def record(one: RuntimeRun) -> dict[str, Any]:
    rungs = [{"name": name, "passed": True, "detail": ""} for name in RUNGS]
    return {"verification": rungs, "runtimes": [one.to_json()]}


def test_nodes_that_compute_sizes_or_move_values_are_set_aside(file: Path) -> None:
    mine: Rows = [
        ["Gather", "look up"], ["MatMul", "product_token_7"], ["Relu", "relu"],
    ]  # fmt: skip
    edges: Rows = [*SIZES, ["DequantizeLinear", "y_dq"], ["QuantizeLinear", "ids_q"]]
    found = run(file, {QNN: mine, CPU: edges})
    assert found.taken() == (3, 3)  # 3 of 8 by number
    assert Demand.parse("parity@ep").lacks(record(found)) == ""
    assert partly_taken(record(found)) == ""


def test_the_weights_of_what_fell_back_are_told(file: Path) -> None:
    fell: Rows = [["Gather", "look up"], *SIZES]
    found = run(file, {QNN: [["MatMul", "product"], ["Relu", "relu"]], CPU: fell})
    assert found.taken() == (2, 3)
    # The matrix is folded before nodes are assigned: the product reads it. Two numbers of sizes
    # belong to nodes on the CPU.
    assert found.weights() == (100, 516)
    told = "QNNExecutionProvider npu took 2 of 3 nodes and 19.4% of the weights"
    assert Demand.parse("parity@ep").lacks(record(found)) == f"it is parity on a mixture: {told}"
    assert partly_taken(record(found)) == told


def test_moved_values_do_not_hide_that_little_was_taken(file: Path) -> None:
    moved: Rows = [["Transpose", f"moved {number}"] for number in range(40)]
    found = run(file, {QNN: [*moved, ["Relu", "relu"]], CPU: [["MatMul", "product"]]})
    assert found.taken() == (1, 2)  # 41 of 42 by number
    assert "on a mixture" in Demand.parse("parity@ep").lacks(record(found))


def test_a_runtime_that_lists_no_nodes_is_believed_by_their_number() -> None:
    run = RuntimeRun(NPU, own=True, models={"model.onnx": {"nodes": {QNN: 9, CPU: 1}}})
    assert (run.taken(), run.weights()) == ((9, 10), (0, 0))
    assert run.to_json()["ran"]
