"""The arithmetic of quantization: ranges, masks, int8 weights, fp16, fixed shapes."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.engines import graphs
from workers.engine import Request, StageError, StageJob
from workers.optimum_engine import (
    attempts,
    calibrate,
    device_limits,
    quantize,
    shapes,
    transposed,
    weight_only,
)
from workers.sources import fixed_shapes, model_file, onnx_graph, samples

X = np.random.default_rng(5).standard_normal((2, 8)).astype(np.float32)


def outputs(model: Any) -> Any:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": X})[0]


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_rounded_ranges_hold_the_value_and_are_tight(value: float) -> None:
    low, high = calibrate.rounded(value, value)
    slack = abs(value) * 1e-6
    assert low - slack <= value <= high + slack
    assert high - low <= abs(value) * 2**-10


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_noise_in_the_last_bits_mostly_vanishes(value: float) -> None:
    grid = calibrate.outwards(value, 1)
    assert calibrate.outwards(grid * (1 + 1e-8), 1) == grid
    assert calibrate.outwards(grid * (1 - 1e-8), 1) == grid


def test_endless_values_count_as_the_depth_of_a_mask() -> None:
    lowest = float(np.finfo(np.float32).min)
    assert calibrate.finite_bounds(np.array([lowest, 1.0, 3.0]), calibrate.Limits(100)) == (-100, 3)
    assert calibrate.finite_bounds(np.array([-math.inf, -200.0]), calibrate.Limits(100)) == (
        -200,
        -200,
    )
    assert calibrate.finite_bounds(np.array([math.inf]), calibrate.Limits(50)) == (0, 50)
    assert math.isnan(calibrate.finite_bounds(np.array([1.0, math.nan]), calibrate.Limits(100))[0])


def test_a_percentile_leaves_the_outermost_values_out() -> None:
    array = np.arange(100_000, dtype=np.float32)
    array[7], array[8] = -1e6, 1e6
    assert calibrate.finite_bounds(array, calibrate.Limits(100)) == (-1e6, 1e6)
    low, high = calibrate.finite_bounds(array, calibrate.Limits(100, 1e-4))
    assert (0 <= low <= 10, 99_980 <= high <= 99_999) == (True, True)
    assert {low, high} <= set(array.tolist())
    few = np.array([1.0, 2.0, 3.0])
    assert calibrate.finite_bounds(few, calibrate.Limits(100, 1e-4)) == (1.0, 3.0)
    masked = np.append(array, -np.inf)
    assert calibrate.finite_bounds(masked, calibrate.Limits(1e7, 1e-4))[0] == -1e7


def test_nan_is_an_error_that_names_the_tensor() -> None:
    with pytest.raises(StageError, match="NaN at 'inner'") as raised:
        calibrate.widen({}, {"inner": np.array([math.nan])}, calibrate.Limits(100))
    assert raised.value.failure == "QUANTIZE"


def test_masks_become_shallow_and_numbers_stay(tmp_path: Path) -> None:
    lowest = np.finfo(np.float32).min
    weights = {
        "mask": np.array([[lowest, 0, -np.inf]], np.float32),
        "w": np.array([[-1e9, 5]], np.float32),
        "ids": np.array([2**40]),
    }
    model = graphs.model([helper.make_node("Identity", ["x"], ["y"])], weights)
    assert calibrate.make_shallow(model, 100.0, tmp_path) == 1
    mask, weight, _ = (onnx.numpy_helper.to_array(item) for item in model.graph.initializer)
    assert mask.tolist() == [[-100, 0, -100]]
    assert (weight == weights["w"]).all()


@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "GemmT"])
def test_int8_weights_are_plain_onnx_and_close(tmp_path: Path, kind: str) -> None:
    weight = np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)
    weight[:, 3] *= 1000  # one channel must not cost the others their steps
    if kind == "MatMul":
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    else:
        node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=int(kind == "GemmT"))
    model = graphs.model([node], {"w": weight.T.copy() if kind == "GemmT" else weight})
    model_file.save(model, tmp_path)
    made, told = weight_only.convert(tmp_path, ())
    onnx.checker.check_model(made, full_check=True)
    assert told == {"weights": 1, "types": {"int8": 1}}
    assert not onnx_graph.contrib(made)
    expected, found = outputs(model), outputs(made)
    half_steps = np.abs(weight).max(axis=0) / 127 / 2
    bound = np.abs(X).sum(axis=1, keepdims=True) * half_steps
    assert (np.abs(expected - found) <= bound * 1.01 + 1e-5).all()


def test_weights_that_others_read_are_left_alone(tmp_path: Path) -> None:
    weight = np.ones((8, 256), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
        helper.make_node("Add", ["a", "s"], ["y"]),
    ]
    model_file.save(graphs.model(nodes, {"w": weight}), tmp_path)
    with pytest.raises(StageError, match="no weight"):
        weight_only.convert(tmp_path, ())


def test_blocked_operators_keep_their_weights(tmp_path: Path) -> None:
    model_file.save(graphs.matmul(), tmp_path)
    with pytest.raises(StageError, match="no weight"):
        weight_only.convert(tmp_path, ("MatMul",))


def test_int8_weights_need_opset_13(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = graphs.model([node], {"w": np.ones((8, 256), np.float32)}, opset=12)
    model_file.save(model, tmp_path)
    with pytest.raises(StageError, match="opset 13"):
        weight_only.convert(tmp_path, ())


def test_fp16_keeps_the_types_of_the_ports(tmp_path: Path) -> None:
    model = graphs.matmul()
    model_file.save(model, tmp_path / "model")
    made, told = quantize.to_fp16(tmp_path / "model", tmp_path, ())
    assert told["types"] == {"float16": 1, "float": 0}
    assert {value.type.tensor_type.elem_type for value in made.graph.input} == {1}
    assert np.abs(outputs(made) - outputs(model)).max() < 0.05
    kept, told = quantize.to_fp16(tmp_path / "model", _empty(tmp_path / "other"), ("MatMul",))
    assert told["types"] == {"float16": 0, "float": 1}
    assert np.abs(outputs(kept) - outputs(model)).max() < 0.05


def test_shapes_come_from_arrays_and_runs() -> None:
    model = graphs.matmul()
    assert fixed_shapes.dynamic(model) == ["x", "y"]
    fixed_shapes.fix(model, {"x": X})
    assert fixed_shapes.dynamic(model) == ["y"]
    fixed_shapes.fix_outputs(model, {"y": outputs(model)})
    assert not fixed_shapes.dynamic(model)
    dims = model.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 256]


@pytest.mark.parametrize(
    ("config", "padded", "length"),
    [
        ({}, False, 128),
        ({"max_position_embeddings": 512}, False, 128),
        ({"max_position_embeddings": 514}, False, 128),
        ({"max_position_embeddings": 64}, False, 32),
        ({"n_positions": 1024}, False, 128),
        ({"text_config": SimpleNamespace(max_position_embeddings=77)}, True, 77),
        ({"max_position_embeddings": -1}, False, 128),
        ({"max_target_positions": 64, "max_position_embeddings": 512}, False, 32),
        ({"decoder": SimpleNamespace(n_positions=64)}, False, 32),
    ],
)
def test_texts_fit_the_model(
    config: dict[str, Any], padded: bool, length: int, tmp_path: Path
) -> None:
    made = shapes.base_shapes(SimpleNamespace(**config), tmp_path, {}, padded=padded)
    assert made == {"batch_size": 1, "sequence_length": length}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"size": 384}', (384, 384)),
        (
            '{"crop_size": {"height": 224, "width": 200}, "size": {"shortest_edge": 256}}',
            (224, 200),
        ),
        ('{"size": {"shortest_edge": 256}, "do_center_crop": false, "crop_size": 224}', (256, 256)),
        ('{"size": {"longest_edge": 1333}}', None),
        ("{", None),
    ],
)
def test_images_have_the_size_of_the_preprocessor(
    text: str, size: tuple[int, int] | None, tmp_path: Path
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text, encoding="utf-8")
    made = shapes.base_shapes(SimpleNamespace(), tmp_path, {"batch_size": 4})
    assert made["batch_size"] == 4
    assert (made.get("height"), made.get("width")) == (size or (None, None))


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("shared", [False, True])
def test_transposed_weights_are_transposed_in_files(tmp_path: Path, shared: bool) -> None:
    weight = np.random.default_rng(4).standard_normal((256, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["a" if shared else "y"]),
    ]
    if shared:
        nodes += [
            helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
            helper.make_node("Add", ["a", "s"], ["y"]),
        ]
    model = graphs.model(nodes, {"w": weight})
    expected = outputs(model)
    assert transposed.fold(model, tmp_path) == 1
    assert "Transpose" not in onnx_graph.operators(model)
    model_file.save(model, tmp_path / "out", tmp_path)
    made = model_file.load(tmp_path / "out" / "model.onnx")
    names = {tensor.name for tensor in made.graph.initializer}
    assert names == ({"w", "turned"} if shared else {"turned"})
    assert (outputs(made) == expected).all()
    assert transposed.fold(model, tmp_path) == 0


def test_large_weights_become_halves_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = graphs.matmul()
    constant = helper.make_node(
        "Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.ones((8, 256), np.float32))
    )
    model.graph.node[0].output[0] = "product"
    model.graph.node.insert(0, constant)
    model.graph.node.extend(
        [
            helper.make_node("MatMul", ["x", "c"], ["sums"], name="sums"),
            helper.make_node("Add", ["product", "sums"], ["y"], name="add"),
        ]
    )
    expected = outputs(model)
    made = {}
    for place, threshold in (("inside", 1 << 30), ("beside", 2000)):
        monkeypatch.setattr(model_file, "EXTERNAL_THRESHOLD", threshold)
        folder = _empty(tmp_path / place)
        model_file.save(copied(model), folder / "model")
        found, told = quantize.to_fp16(folder / "model", folder, ())
        onnx_graph.sort(found.graph)
        model_file.save(found, folder / "out", folder / "model")
        made[place] = model_file.load(folder / "out" / "model.onnx")
        assert told["types"] == {"float16": 1, "float": 0}
    assert contents(made["inside"]) == contents(made["beside"])
    assert np.abs(outputs(made["beside"]) - expected).max() < 0.1


def contents(model: Any) -> list[Any]:
    """Nodes and weights, wherever these were."""
    weights = [
        (tensor.name, tensor.data_type, onnx.numpy_helper.to_array(tensor).tobytes())
        for tensor in model.graph.initializer
    ]
    return [[(node.op_type, *node.input) for node in model.graph.node], weights]


def copied(model: Any) -> Any:
    """Saving takes large weights out of a graph."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def test_the_quantizer_reads_weights_beside_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {}
    for place, threshold in (("inside", 1 << 30), ("beside", 2000)):
        monkeypatch.setattr(model_file, "EXTERNAL_THRESHOLD", threshold)
        folder = _empty(tmp_path / place)
        model_file.save(graphs.matmul(), folder / "model")
        _empty(folder / "inputs")
        np.savez(folder / "inputs" / samples.FILE, x=X[None])
        inputs = {"inputs": folder / "inputs"}
        job = StageJob("quantize", {}, Request({}, {}, {}), inputs, folder / "job")
        found, where, told = attempts.convert(job, folder / "model", folder, "w8a16", ())
        onnx_graph.sort(found.graph)
        model_file.save(found, folder / "out", where)
        made[place] = model_file.load(folder / "out" / "model.onnx")
        assert told["dequantize_nodes"] >= 3
    assert contents(made["inside"]) == contents(made["beside"])


def test_a_bias_that_is_an_operand_too_gets_a_tensor_of_its_own() -> None:
    weights = {"w": np.ones((8, 8), np.float32), "zeros": np.zeros(8, np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "zeros"], ["a"], name="first"),
        helper.make_node("Gemm", ["a", "w", "zeros"], ["b"], name="second"),
        helper.make_node("Add", ["b", "zeros"], ["y"], name="sum"),
    ]
    apart = graphs.model(nodes, weights)
    assert device_limits.rewrite(apart) == 2
    onnx.checker.check_model(apart)
    assert [list(node.input)[-1] for node in apart.graph.node] == [
        "zeros/first", "zeros/second", "zeros"
    ]  # fmt: skip
    shared = graphs.model(nodes[:2], weights)
    before = shared.SerializeToString()
    assert device_limits.rewrite(shared) == 0
    assert shared.SerializeToString() == before


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
    assert device_limits.rewrite(model) == whole
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
    assert device_limits.rewrite(model) == 1
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
    assert device_limits.rewrite(model) == count
