"""What a device cannot do is rewritten to what computes the same."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from matrix.model import REWRITES
from tests.engines import graphs
from workers.optimum_engine import device_limits


def test_a_bias_that_is_an_operand_too_gets_a_tensor_of_its_own() -> None:
    weights = {"w": np.ones((8, 8), np.float32), "zeros": np.zeros(8, np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "zeros"], ["a"], name="first"),
        helper.make_node("Gemm", ["a", "w", "zeros"], ["b"], name="second"),
        helper.make_node("Add", ["b", "zeros"], ["y"], name="sum"),
    ]
    apart = graphs.model(nodes, weights)
    assert sum(device_limits.rewrite(apart, REWRITES).values()) == 2
    onnx.checker.check_model(apart)
    assert [list(node.input)[-1] for node in apart.graph.node] == [
        "zeros/first", "zeros/second", "zeros"
    ]  # fmt: skip
    shared = graphs.model(nodes[:2], weights)
    before = shared.SerializeToString()
    assert not device_limits.rewrite(shared, REWRITES)
    assert shared.SerializeToString() == before


def test_tensors_without_elements_are_not_joined() -> None:
    ends = {name: np.array([number], np.int64) for name, number in (("none", 0), ("all", 8))}
    nodes = [
        helper.make_node("Slice", ["x", "all", "all", "one"], ["rest"]),
        helper.make_node("Neg", ["rest"], ["turned"]),
        helper.make_node("Concat", ["x", "turned"], ["joined"], axis=1),
        helper.make_node("Concat", ["turned", "joined", "x"], ["y"], axis=1),
    ]
    model = graphs.model(nodes, {**ends, "one": np.array([1], np.int64)}, out=["batch", 16])
    model = onnx.shape_inference.infer_shapes(model)
    wanted = graphs.outputs(model)
    assert device_limits.rewrite(model, REWRITES) == {"empties": 2}
    assert [(node.op_type, list(node.input)) for node in model.graph.node] == [
        ("Concat", ["x", "x"])
    ]  # fmt: skip
    np.testing.assert_array_equal(graphs.outputs(model), wanted)


@pytest.mark.parametrize(
    ("kernel", "pads", "size", "whole"),
    [(9, 0, 4, True), (4, 0, 4, False), (9, 1, 4, False), (9, 0, 0, False)],
)
def test_a_pool_larger_than_its_input_is_a_mean(
    kernel: int, pads: int, size: int, whole: bool
) -> None:
    node = helper.make_node(
        "AveragePool",
        ["x"],
        ["y"],
        kernel_shape=[kernel] * 2,
        strides=[kernel] * 2,
        ceil_mode=1,
        pads=[pads] * 4,
    )
    shape = [1, 2, size or "height", size or "width"]
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        for name, dims in (("x", shape), ("y", None))
    ]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    before = model.SerializeToString()
    assert sum(device_limits.rewrite(model, REWRITES).values()) == whole
    if not whole:
        assert model.SerializeToString() == before
        return
    values = np.random.default_rng(1).standard_normal((1, 2, size, size)).astype(np.float32)
    found = [
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(
            None, {"x": values}
        )[0]
        for data in (before, model.SerializeToString())
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("dims", "order"),
    [
        ([4, 4, 2, 4, 2, 16], [0, 2, 4, 1, 3, 5]),
        ([2, 3, 2, 3, 2, 3, 2], [6, 5, 4, 3, 2, 1, 0]),
        ([2, 1, 3, 1, 2], [3, 2, 4, 1, 0]),
    ],
)
def test_exchanges_of_blocks_make_a_transpose(dims: list[int], order: list[int]) -> None:
    values = np.arange(math.prod(dims))
    found = values
    for four in device_limits.swaps(dims, order):
        found = found.reshape(four).transpose(0, 2, 1, 3)
    assert (found.ravel() == values.reshape(dims).transpose(order).ravel()).all()


def test_a_transpose_of_six_dimensions_becomes_transposes_of_four() -> None:
    weights = {"in": np.array([2, 2, 2, 2, 2, 2]), "out": np.array([8, 8])}
    nodes = [
        helper.make_node("Reshape", ["x", "in"], ["six"], name="split"),
        helper.make_node("Transpose", ["six"], ["turned"], name="turn", perm=[0, 2, 4, 1, 3, 5]),
        helper.make_node("Reshape", ["turned", "out"], ["y"], name="join"),
    ]
    model = graphs.model(nodes, weights, out=[8, 8])
    before = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    six = helper.make_tensor_value_info("six", onnx.TensorProto.FLOAT, [2] * 6)
    model.graph.value_info.append(six)
    assert sum(device_limits.rewrite(model, REWRITES).values()) == 1
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    assert {node.op_type for node in model.graph.node} == {"Reshape", "Transpose"}
    assert all(len(node.attribute[0].ints) == 4 for node in model.graph.node if node.attribute)
    values = np.random.default_rng(2).standard_normal((8, 8)).astype(np.float32)
    after = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    assert (before.run(None, {"x": values})[0] == after.run(None, {"x": values})[0]).all()


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (4, 0)])
def test_layer_normalization_of_several_batches_keeps_its_bias(batch: int, count: int) -> None:
    weights = {"scale": np.ones(8, np.float32), "zeros": np.zeros(8, np.float32)}
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["whole"], name="whole"),
        helper.make_node("LayerNormalization", ["whole", "scale", "zeros"], ["n"], name="norm"),
        helper.make_node("Add", ["n", "zeros"], ["y"], name="sum"),
    ]
    model = graphs.model(nodes, {**weights, "axis": np.array([1])}, out=[batch, 1, 8])
    model.graph.value_info.append(
        helper.make_tensor_value_info("whole", onnx.TensorProto.FLOAT, [batch, 1, 8])
    )
    assert sum(device_limits.rewrite(model, REWRITES).values()) == count


@pytest.mark.parametrize(
    ("operator", "names", "value", "goes"),
    [
        ("Add", ["a", "operand"], 0, True),
        ("Add", ["operand", "a"], 0, True),
        ("Mul", ["operand", "a"], 1, True),
        ("Sub", ["a", "operand"], 0, True),
        ("Div", ["a", "operand"], 1, True),
        ("Sub", ["operand", "a"], 0, False),
        ("Div", ["operand", "a"], 1, False),
        ("Add", ["a", "operand"], 1, False),
        ("Mul", ["a", "operand"], 0, False),
    ],
)
def test_operators_that_change_nothing_go(
    operator: str, names: list[str], value: int, goes: bool
) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="first"),
        helper.make_node(operator, names, ["b"], name="neutral"),
        helper.make_node("Relu", ["b"], ["y"], name="last"),
    ]
    made = graphs.model(nodes, {"operand": np.full(8, value, np.float32)}, out=["batch", 8])
    made.graph.value_info.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [2, 8]))
    expected = graphs.outputs(made)
    assert sum(device_limits.rewrite(made, REWRITES).values()) == goes
    assert [node.op_type for node in made.graph.node] == (
        ["Neg", "Relu"] if goes else ["Neg", operator, "Relu"]
    )
    assert (graphs.outputs(made) == expected).all()


def test_an_operand_that_enlarges_the_result_stays() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], name="sum"),
        helper.make_node("Mul", ["sum", "ones"], ["wide"], name="spread"),
        helper.make_node("Add", ["wide", "zeros"], ["y"], name="result"),
    ]
    weights = {
        "axis": np.array([1]), "ones": np.ones((1, 8), np.float32), "zeros": np.zeros(8, np.float32)
    }  # fmt: skip
    made = graphs.model(nodes, weights, out=["batch", 8])
    made.graph.value_info.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, width])
        for name, width in (("sum", 1), ("wide", 8))
    )
    assert (
        sum(device_limits.rewrite(made, REWRITES).values()) == 0
    )  # the last one names a result of the graph


def test_biases_of_several_batches_are_found() -> None:
    weights = {name: np.ones(8, np.float32) for name in ("scale", "bias", "other")}
    nodes = [
        helper.make_node("LayerNormalization", ["several", "scale", "bias"], ["n"], name="a"),
        helper.make_node("LayerNormalization", ["single", "scale", "other"], ["y"], name="b"),
    ]
    made = graphs.model(nodes, weights)
    made.graph.value_info.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [batch, 4, 8])
        for name, batch in (("several", 4), ("single", 1))
    )
    assert device_limits.biases_of_several(made) == {"bias"}
