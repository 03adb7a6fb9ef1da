"""fp16, and weights that are beside the graph when it is converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from matrix.model import REWRITES
from tests.engines import graphs
from tests.engines.graphs import ROWS, outputs
from workers.engine import Request, StageJob
from workers.optimum_engine import attempts, halves, rewrites
from workers.samples import files
from workers.samples.parts import PARTS
from workers.sources import model_file, onnx_graph


def test_fp16_keeps_the_types_of_the_ports(tmp_path: Path) -> None:
    model = graphs.matmul()
    model_file.save(model, tmp_path / "model")
    made, told = halves.convert(tmp_path / "model", tmp_path, (), [{"x": ROWS}])
    assert told["types"] == {"float16": 1, "float": 0}
    assert {value.type.tensor_type.elem_type for value in made.graph.input} == {1}
    assert np.abs(outputs(made) - outputs(model)).max() < 0.05
    kept, told = halves.convert(
        tmp_path / "model", _empty(tmp_path / "other"), ("MatMul",), [{"x": ROWS}]
    )
    assert told["types"] == {"float16": 0, "float": 1}
    assert np.abs(outputs(kept) - outputs(model)).max() < 0.05


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
        found, told = halves.convert(folder / "model", folder, (), [{"x": ROWS}])
        onnx_graph.sort(found.graph)
        model_file.save(found, folder / "out", folder / "model")
        made[place] = model_file.load(folder / "out" / "model.onnx")
        assert told["types"] == {"float16": 1, "float": 0}
    assert contents(made["inside"]) == contents(made["beside"])
    assert np.abs(outputs(made["beside"]) - expected).max() < 0.1


def test_the_quantizer_reads_weights_beside_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {}
    for place, threshold in (("inside", 1 << 30), ("beside", 2000)):
        monkeypatch.setattr(model_file, "EXTERNAL_THRESHOLD", threshold)
        made[place] = quantized(_empty(tmp_path / place), graphs.matmul(), ROWS, "w8a16")
        assert sum(node.op_type == "DequantizeLinear" for node in made[place].graph.node) >= 3
    assert contents(made["inside"]) == contents(made["beside"])


@pytest.mark.parametrize("shape", [(1, 256), (1,), (), (1, 1), (256,)])
def test_a_bias_of_any_shape_is_quantized(tmp_path: Path, shape: tuple[int, ...]) -> None:
    model = graphs.matmul()
    bias = np.resize(np.linspace(3, 9, 256, dtype=np.float32), shape)
    node = model.graph.node[0]
    model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "bias"))
    node.op_type = "Gemm"
    node.input.append("bias")
    made = quantized(tmp_path, model, ROWS, "w8a8")
    assert np.abs(outputs(made) - outputs(model)).max() < 0.05 * np.abs(outputs(model)).max()


def test_copies_of_a_shared_bias_have_names_of_their_own(tmp_path: Path) -> None:
    model = graphs.matmul()
    bias = np.linspace(3, 9, 256, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "bias"))
    del model.graph.node[0]
    names = [f"bias{number}" for number in range(3)]  # as ONNX Runtime names its copies
    for name in names:
        model.graph.node.append(helper.make_node("Gemm", ["x", "w", "bias"], [name], name=name))
    model.graph.node.append(helper.make_node("Sum", names, ["y"], name="sum"))
    made = quantized(tmp_path, model, ROWS, "w8a8")
    assert np.abs(outputs(made) - outputs(model)).max() < 0.05 * np.abs(outputs(model)).max()


def test_a_softmax_in_doubles_stays(tmp_path: Path) -> None:
    model = graphs.matmul()
    model.graph.node[0].output[0] = "product"
    model.graph.node.extend(
        [
            helper.make_node("Cast", ["product"], ["doubles"], to=onnx.TensorProto.DOUBLE),
            helper.make_node("Softmax", ["doubles"], ["shares"]),
            helper.make_node("Cast", ["shares"], ["y"], to=onnx.TensorProto.FLOAT),
        ]
    )
    made = quantized(tmp_path, model, ROWS, "w8a16")
    assert np.abs(outputs(made) - outputs(model)).max() < 0.05


def quantized(folder: Path, model: Any, rows: Any, precision: str, *needed: str) -> Any:
    """A graph as it is quantized with one sample for a provider that needs these rewrites."""
    model_file.save(model, folder / "model")
    files.save({part: [{"x": rows}] for part in PARTS}, folder / "inputs")
    (folder / rewrites.FILE).write_text(json.dumps(needed), "utf-8")
    inputs = {"inputs": folder / "inputs", "rewrites": folder}
    job = StageJob("quantize", {}, Request({}, {}, {}), inputs, folder / "job")
    found, where, _told = attempts.convert(job, folder / "model", folder, precision, ())
    onnx_graph.sort(found.graph)
    model_file.save(found, folder / "out", where)
    return model_file.load(folder / "out" / "model.onnx")


@pytest.mark.parametrize(
    ("batch", "needed", "kind"),
    [(1, REWRITES, "INT32"), (2, REWRITES, "UINT16"), (2, (), "INT32")],
)
def test_norms_of_several_batches_have_a_bias_like_an_activation_on_the_htp(
    tmp_path: Path, batch: int, needed: tuple[str, ...], kind: str
) -> None:
    weights = {
        "axis": np.array([1]), "scale": np.ones(8, np.float32), "bias": np.ones(8, np.float32)
    }  # fmt: skip
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["whole"], name="whole"),
        helper.make_node("LayerNormalization", ["whole", "scale", "bias"], ["y"], name="norm"),
    ]
    model = graphs.model(nodes, weights, out=[batch, 1, 8])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    made = quantized(tmp_path, model, ROWS[:batch], "w8a16", *needed)
    types = {
        tensor.name: onnx.TensorProto.DataType.Name(tensor.data_type)
        for tensor in made.graph.initializer
    }
    assert types["bias_quantized"] == kind


@pytest.mark.parametrize("needed", [(), ("epsilons",)])
@pytest.mark.parametrize("precision", ["w8a16", "w8a8"])
def test_a_row_of_zeros_is_normalized_to_zeros(
    tmp_path: Path, precision: str, needed: tuple[str, ...]
) -> None:
    """The epsilon is smaller than a step of the sum that it is added to: it is raised for the HTP,
    elsewhere the norm stays in floating point."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"], name="square"),
        helper.make_node("ReduceMean", ["squares"], ["mean"], name="mean", axes=[1]),
        helper.make_node("Add", ["mean", "epsilon"], ["sum"], name="add"),
        helper.make_node("Sqrt", ["sum"], ["root"], name="root"),
        helper.make_node("Div", ["x", "root"], ["scaled"], name="scale"),
        helper.make_node("MatMul", ["scaled", "w"], ["y"], name="product"),
    ]
    weights = {"epsilon": np.float32(1e-6), "w": np.eye(8, dtype=np.float32)}
    rows = ROWS * np.array([[1], [0]], np.float32)
    made = quantized(tmp_path, graphs.model(nodes, weights), rows, precision, *needed)
    found = outputs(made, rows)
    assert not found[1].any()
    floats = {tensor.name for tensor in made.graph.initializer if tensor.name == "epsilon"}
    assert floats == (set() if needed else {"epsilon"})
    wanted = rows[0] / np.sqrt((rows[0] ** 2).mean())
    assert np.abs(found[0] - wanted).max() < 0.05


@pytest.mark.parametrize("precision", ["w8a16", "w8a8"])
def test_a_clip_without_a_highest_value_clips_nothing(tmp_path: Path, precision: str) -> None:
    """The highest float is no mask: -1, 10, 60, 1000 became 0, 10, 50, 50 in w8a8."""
    nodes = [
        helper.make_node("Clip", ["x", "zero", "highest"], ["clipped"], name="clip"),
        helper.make_node("MatMul", ["clipped", "w"], ["y"], name="product"),
    ]
    weights = {
        "zero": np.float32(0), "highest": np.finfo(np.float32).max, "w": np.eye(8, dtype=np.float32)
    }  # fmt: skip
    rows = np.resize(np.array([-1, 10, 60, 1000], np.float32), (1, 8))
    found = outputs(quantized(tmp_path, graphs.model(nodes, weights), rows, precision), rows)
    step = 1000 / (255 if precision == "w8a8" else 65535)
    assert np.abs(found - rows.clip(0)).max() < 2 * step + 0.01


def test_a_clip_still_clips_where_its_result_has_room(tmp_path: Path) -> None:
    """The quantizer leaves it out, and the range of the result has to cut off the same."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Clip", ["product", "zero", "six"], ["clipped"], name="clip"),
        helper.make_node("MatMul", ["clipped", "w"], ["y"], name="again"),
    ]
    weights = {"zero": np.float32(0), "six": np.float32(6), "w": np.eye(8, dtype=np.float32)}
    rows = np.linspace(-20, 20, 8, dtype=np.float32)[None]
    made = quantized(tmp_path, graphs.model(nodes, weights), rows, "w8a16")
    assert np.abs(outputs(made, rows) - rows.clip(0, 6)).max() < 0.05


def test_a_tensor_that_is_always_empty_stays_in_floating_point(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Greater", ["x", "limit"], ["high"], name="high"),
        helper.make_node("NonZero", ["high"], ["places"], name="places"),
        helper.make_node("Shape", ["places"], ["counts"], name="counts"),
        helper.make_node("Gather", ["counts", "one"], ["count"], name="count"),
        helper.make_node("Expand", ["half", "count"], ["none"], name="none"),
        helper.make_node("Reshape", ["x", "flat"], ["values"], name="values"),
        helper.make_node("Concat", ["values", "none"], ["all"], name="all", axis=0),
        helper.make_node("Reshape", ["all", "wide"], ["rows"], name="rows"),
        helper.make_node("MatMul", ["rows", "w"], ["y"], name="product"),
    ]
    weights = {
        "limit": np.float32(1e9), "one": np.array([1]), "half": np.array([0.5], np.float32),
        "flat": np.array([-1]), "wide": np.array([-1, 8]), "w": np.eye(8, dtype=np.float32),
    }  # fmt: skip
    made = quantized(tmp_path, graphs.model(nodes, weights), ROWS, "w8a16")
    assert np.abs(outputs(made, ROWS) - ROWS).max() < 0.05
    inputs = {node.name: [*node.input] for node in made.graph.node}
    assert inputs["none"] == ["half", "count"]
    assert "w" not in inputs["product"]


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


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder
