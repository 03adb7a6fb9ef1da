"""The quantize stage on small graphs by hand, whose first quantization misses parity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.engines import graphs
from tests.engines.sources import make_request
from workers.engine import StageError, StageJob
from workers.optimum_engine import OptimumEngine, engine, rewrites
from workers.samples import files
from workers.samples.parts import PARTS
from workers.sources import model_file

pytestmark = pytest.mark.engine

EVERY = list(engine.STEPS)
UNEVEN = np.logspace(0, -4, 16).astype(np.float32)
"""Columns of these sizes cannot share one scale of eight bits."""
EVEN = np.full_like(UNEVEN, 0.5)


def graph(sizes: Any) -> Any:
    """y = (x @ w) / sizes @ v: the columns of w differ in size, those of y do not."""
    random = np.random.default_rng(7)
    weights = {
        "w": (random.standard_normal((8, 16)) * sizes).astype(np.float32),
        "sizes": sizes,
        "v": random.standard_normal((16, 32)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Div", ["a", "sizes"], ["b"], name="even"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="second"),
    ]
    return graphs.model(nodes, weights, out=["batch", 32])


def outlier() -> Any:
    """y = norm(x) @ w: one channel of the norm is 300 times as large as the others, and what
    multiplies it is as small."""
    random = np.random.default_rng(7)
    gain = np.array([1, 1, 300, 1, 1, 1, 1, 1], np.float32)
    weights = {
        "gain": gain,
        "bias": np.zeros(8, np.float32),
        "w": (random.standard_normal((8, 32)) / gain[:, None]).astype(np.float32),
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["n"], name="norm"),
        helper.make_node("MatMul", ["n", "w"], ["y"], name="product"),
    ]
    return graphs.model(nodes, weights, out=["batch", 32])


def quantize(
    folder: Path,
    steps: list[str] | None,
    sizes: Any = UNEVEN,
    blocked: Sequence[str] = (),
    *,
    precision: str = "w8a16",
    model: Any = None,
) -> tuple[Any, Mapping[str, Any], list[str]]:
    """The graph that the stage writes, its facts, and what it said on the way."""
    model_file.save(model or graph(sizes), folder / "optimize")
    random = np.random.default_rng(1)
    sets = [{"x": random.standard_normal((2, 8)).astype(np.float32)} for _ in range(4)]
    files.save(dict.fromkeys(PARTS, sets), folder / "inputs")
    given: dict[str, Any] = {"precision": precision, "channels": ["Conv", "Gemm"]}
    given["blocked_ops"] = blocked
    if steps is not None:
        given |= {"parity": {"snr": 15.0}, "requantize": steps}
    said: list[str] = []
    (folder / "out").mkdir()
    (folder / rewrites.FILE).write_text("[]", "utf-8")
    inputs = {"optimize": folder / "optimize", "inputs": folder / "inputs", "rewrites": folder}
    job = StageJob("quantize", given, make_request(), inputs, folder / "out", progress=said.append)
    report = OptimumEngine().run(job)
    return model_file.load(folder / "out" / model_file.MODEL), report.facts, said


def test_it_is_quantized_again_until_parity_holds(tmp_path: Path) -> None:
    model, facts, said = quantize(tmp_path / "a", EVERY)
    steps = [one["step"] for one in facts["attempts"]]
    assert steps == ["as asked", "percentile", "wide"]
    figures = [one["snr"] for one in facts["attempts"]]
    assert figures[0] < 15 < figures[-1]
    assert facts["applied"]["step"] == "wide"
    assert facts["notice"].startswith("w8a16, 1 operator in 16-bit weights: quantized again, ")
    assert "quantizing again: percentile" in said
    again, told, _ = quantize(tmp_path / "b", EVERY)
    assert (again.SerializeToString(), told) == (model.SerializeToString(), facts)


def test_the_operator_that_loses_most_gets_16_bits(tmp_path: Path) -> None:
    model, facts, _ = quantize(tmp_path, ["wide"])
    assert facts["applied"]["step"] == "wide"
    assert facts["wide"] == ["first"]
    assert facts["attempts"][-1]["snr"] > 15
    kinds = Counter(tensor.data_type for tensor in model.graph.initializer if tensor.dims)
    assert kinds[onnx.TensorProto.INT16] == 1
    assert kinds[onnx.TensorProto.UINT8] == 1


def test_the_operator_that_loses_most_stays_in_float(tmp_path: Path) -> None:
    model, facts, _ = quantize(tmp_path, ["float"])
    assert facts["floats"] == ["first"]
    assert facts["attempts"][-1]["snr"] > 15
    assert [t.name for t in model.graph.initializer if t.data_type == 1 and len(t.dims) > 1] == [
        "w"
    ]


def test_channels_that_stand_out_move_into_weights_and_all_stays_in_8_bits(
    tmp_path: Path,
) -> None:
    _, facts, _ = quantize(tmp_path / "off", ["percentile"], precision="w8a8", model=outlier())
    assert max(one["snr"] for one in facts["attempts"]) < 5
    model, facts, said = quantize(tmp_path / "on", EVERY, precision="w8a8", model=outlier())
    assert [one["step"] for one in facts["attempts"]] == ["as asked", "percentile", "smooth"]
    assert facts["attempts"][-1]["snr"] > 25
    assert facts["applied"] == {"step": "smooth", "label": "w8a8", "wide": 0, "float": 0,
                                "weights": 0, "macs": 0, "results": 0}  # fmt: skip
    assert facts["notice"].startswith("w8a8: quantized again with smoothed channels, ")
    assert "moving channels that stand out into weights" in said
    kinds = {tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) == 2}
    assert kinds == {onnx.TensorProto.UINT8}
    again, told, _ = quantize(tmp_path / "again", EVERY, precision="w8a8", model=outlier())
    assert (again.SerializeToString(), told) == (model.SerializeToString(), facts)


def test_the_operators_of_w8a8_that_need_16_bits_may_have_no_weight(tmp_path: Path) -> None:
    """The sum of the large and the small is what the small ones do not survive in 8 bits."""
    random = np.random.default_rng(7)
    sizes = np.array([500, 1, 1, 1, 1, 1, 1, 1], np.float32)
    weights = {"sizes": sizes, "w": random.standard_normal((8, 32)).astype(np.float32)}
    nodes = [
        helper.make_node("Mul", ["x", "sizes"], ["a"], name="uneven"),
        helper.make_node("Add", ["a", "a"], ["b"], name="sum"),
        helper.make_node("Div", ["b", "sizes"], ["c"], name="even"),
        helper.make_node("Relu", ["c"], ["d"], name="relu"),
        helper.make_node("MatMul", ["d", "w"], ["y"], name="product"),
    ]
    uneven = graphs.model(nodes, weights, out=["batch", 32])
    _, facts, _ = quantize(tmp_path, ["wide", "wider"], precision="w8a8", model=uneven)
    assert facts["attempts"][0]["snr"] < 5
    assert facts["wide"] == ["sum", "uneven"]
    assert facts["attempts"][-1]["snr"] > 15
    assert 0 < facts["applied"]["results"] <= 0.5


def test_what_reads_a_result_that_must_not_be_rounded_stays_in_float_too(tmp_path: Path) -> None:
    """The logarithm of what is next to nothing beside the largest value."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("Mul", ["square", "square"], ["power"], name="power"),
        helper.make_node("Mul", ["power", "power"], ["eighth"], name="eighth"),
        helper.make_node("Add", ["eighth", "least"], ["sum"], name="sum"),
        helper.make_node("Log", ["sum"], ["log"], name="log"),
        helper.make_node("MatMul", ["log", "w"], ["y"], name="product"),
    ]
    weights = {
        "least": np.full((1,), 1e-9, np.float32),
        "w": np.random.default_rng(7).standard_normal((8, 32)).astype(np.float32),
    }
    model = graphs.model(nodes, weights, out=["batch", 32])
    _, facts, _ = quantize(tmp_path, ["float"], model=model)
    assert facts["attempts"][0]["snr"] < 10
    assert {"eighth", "sum", "log"} <= set(facts["floats"])
    assert "product" not in facts["floats"]
    assert facts["attempts"][1]["snr"] > 15


def test_16_bits_are_for_no_more_results_than_the_label_allows(tmp_path: Path) -> None:
    """Every other operator needs them, so there are as many conversions as operators."""
    random = np.random.default_rng(7)
    sizes = np.array([2000, 1, 1, 1, 1, 1, 1, 1], np.float32)
    nodes, last = [], "x"
    for number in range(8):
        mul, div = f"mul{number}", f"div{number}"
        nodes += [helper.make_node("Mul", [last, "sizes"], [mul], name=mul),
                  helper.make_node("Div", [mul, "sizes"], [div], name=div)]  # fmt: skip
        last = div
    nodes.append(helper.make_node("MatMul", [last, "w"], ["y"], name="product"))
    weights = {"sizes": sizes, "w": random.standard_normal((8, 32)).astype(np.float32)}
    model = graphs.model(nodes, weights, out=["batch", 32])
    _, facts, _ = quantize(tmp_path, ["wider"], precision="w8a8", model=model)
    assert [one["step"] for one in facts["attempts"]] == ["as asked", "wider"]
    assert facts["attempts"][1]["snr"] > -100
    assert policy_share(tmp_path / "out") <= 0.5


def policy_share(folder: Path) -> float:
    """The share of activations with 16 bits, as verification counts them."""
    model = model_file.load(folder / model_file.MODEL)
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    kinds = [types[n.input[2]] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    return kinds.count(onnx.TensorProto.UINT16) / len(kinds)


def test_nothing_is_tried_without_steps_or_where_the_first_is_good(tmp_path: Path) -> None:
    once, facts, _ = quantize(tmp_path / "once", None)
    assert "attempts" not in facts
    none, facts, _ = quantize(tmp_path / "none", [])
    assert "attempts" not in facts
    assert none.SerializeToString() == once.SerializeToString()
    good, facts, said = quantize(tmp_path / "good", EVERY, EVEN)
    assert "attempts" not in facts
    assert not any("again" in text for text in said)
    before, _, _ = quantize(tmp_path / "before", None, EVEN)
    assert good.SerializeToString() == before.SerializeToString()


def _scales(model: Any) -> dict[str, int]:
    """How many scales each quantized weight has."""
    shapes = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    return {
        node.input[0]: int(dims[0]) if (dims := shapes[node.input[1]]) else 1
        for node in model.graph.node
        if node.op_type == "DequantizeLinear"
    }


@pytest.mark.parametrize(("precision", "held"), [("w8a16", True), ("w8a8", False)])
def test_16_bits_hold_values_beyond_those_that_calibrate(
    tmp_path: Path, precision: str, *, held: bool
) -> None:
    model, _facts, _said = quantize(tmp_path, None, EVEN, precision=precision)
    seen = np.random.default_rng(1).standard_normal((4, 2, 8)).astype(np.float32)
    rows = 1.4 * max(seen, key=lambda one: float(np.abs(one).max()))
    wanted, found = graphs.outputs(graph(EVEN), rows), graphs.outputs(model, rows)
    assert bool(np.linalg.norm(found - wanted) < 0.02 * np.linalg.norm(wanted)) is held


@pytest.mark.parametrize("steps", [EVERY, None], ids=["compared", "not compared"])
def test_what_the_catalog_keeps_in_float_is_in_the_label(
    tmp_path: Path, steps: list[str] | None
) -> None:
    _model, facts, _said = quantize(tmp_path, steps, EVEN, blocked=["Div"])
    assert "attempts" not in facts  # the first passes
    assert facts["notice"] == facts["applied"]["label"] == "w8a16, 1 operator in float"
    assert (facts["applied"]["float"], facts["applied"]["weights"]) == (1, 0.0)


@pytest.mark.parametrize("steps", [[], None], ids=["compared", "not compared"])
def test_a_graph_that_is_mostly_float_is_no_w8a16(tmp_path: Path, steps: list[str] | None) -> None:
    with pytest.raises(StageError, match="is not w8a16: 100% of its weights") as raised:
        quantize(tmp_path, steps, blocked=["MatMul"])
    assert "another precision" in raised.value.hint
