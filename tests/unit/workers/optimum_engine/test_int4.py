"""4-bit weights in both forms: close, plain where they have to be, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests.engines import graphs
from tests.engines.graphs import ROWS, outputs
from workers.engine import StageError
from workers.optimum_engine import int4
from workers.sources import model_file, onnx_graph

SIZE = 32
FORMS = ("DequantizeLinear", "MatMulNBits")
RANDOM = np.random.default_rng(2)
WEIGHT = RANDOM.standard_normal((96, 40)).astype(np.float32)
WEIGHT[:, 3] *= 1000  # one output must not cost the others their steps


def params(form: str, *, symmetric: bool = False, block_size: int = SIZE) -> dict[str, Any]:
    return {"form": form, "block_size": block_size, "symmetric": symmetric}


def wide(nodes: list[Any], weights: dict[str, Any], *, opset: int = 21) -> Any:
    """x [batch, 8] twelve times beside itself, as `wide` [batch, 96]."""
    tile = helper.make_node("Tile", ["x", "times"], ["wide"])
    return graphs.model([tile, *nodes], {"times": np.array([1, 12]), **weights}, opset=opset)


def product(kind: str) -> Any:
    weights = {"w": WEIGHT.T.copy() if kind == "GemmT" else WEIGHT}
    if kind == "MatMul":
        return wide([helper.make_node("MatMul", ["wide", "w"], ["y"])], weights)
    bias = {"c": RANDOM.standard_normal(40).astype(np.float32)}
    node = helper.make_node("Gemm", ["wide", "w", "c"], ["y"], transB=int(kind == "GemmT"))
    return wide([node], weights | bias)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "GemmT"])
def test_products_are_close(tmp_path: Path, kind: str, form: str, symmetric: bool) -> None:
    model = product(kind)
    expected = outputs(model)
    model_file.save(model, tmp_path)
    made, told = int4.convert(tmp_path, (), params(form, symmetric=symmetric))
    onnx_graph.sort(made.graph)
    onnx.checker.check_model(made, full_check=True)
    name = "int4" if symmetric and form == "DequantizeLinear" else "uint4"
    assert told["types"] == {name: 1}
    assert bool(onnx_graph.contrib(made)) == (form == "MatMulNBits")
    steps = np.ptp(WEIGHT, axis=0) / (7 if symmetric else 15)
    bound = np.abs(ROWS).sum(axis=1, keepdims=True) * 12 * steps / 2
    assert (np.abs(outputs(made) - expected) <= bound * 1.01 + 1e-5).all()
    sizes = {tensor.name: onnx_graph.tensor_bytes(tensor) for tensor in made.graph.initializer}
    assert sizes["w_int4"] == WEIGHT.size / 2


def test_plain_weights_are_written_the_way_that_runtimes_fuse(tmp_path: Path) -> None:
    model_file.save(product("GemmT"), tmp_path / "model")
    made, _ = int4.convert(tmp_path / "model", (), params("DequantizeLinear"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "opened.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    opened = onnx.load(str(tmp_path / "opened.onnx"))
    assert "com.microsoft:MatMulNBits" in onnx_graph.operators(opened)


def test_rows_of_tables_are_looked_up_as_int8(tmp_path: Path) -> None:
    table = RANDOM.standard_normal((100, 96)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], to=onnx.TensorProto.INT64),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
    ]
    model = graphs.model(nodes, {"table": table, "w": WEIGHT}, out=["batch", 8, "width"])
    model_file.save(model, tmp_path)
    made, told = int4.convert(tmp_path, (), params("MatMulNBits"))
    assert told["types"] == {"uint4": 1, "int8": 1}
    onnx_graph.sort(made.graph)
    onnx.checker.check_model(made, full_check=True)
    expected, found = outputs(model), outputs(made)
    narrow = np.delete(np.arange(40), 3)
    assert np.abs(found - expected)[..., narrow].max() < 6
    kept, told = int4.convert(tmp_path, ("Gather",), params("MatMulNBits"))
    assert told["types"] == {"uint4": 1}
    assert "table" in {tensor.name for tensor in kept.graph.initializer}


@pytest.mark.parametrize(
    ("form", "opset", "size", "blocked", "words"),
    [
        ("DequantizeLinear", 20, SIZE, (), "need opset 21, the graph has 20"),
        ("MatMulNBits", 12, SIZE, (), "need opset 13"),
        ("MatMulNBits", 17, 128, (), "blocks of 128"),
        ("DequantizeLinear", 21, SIZE, ("MatMul",), "no weight of MatMul or Gemm"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, form: str, opset: int, size: int, blocked: tuple[str, ...], words: str
) -> None:
    node = helper.make_node("MatMul", ["wide", "w"], ["y"])
    model_file.save(wide([node], {"w": WEIGHT}, opset=opset), tmp_path)
    with pytest.raises(StageError, match=words) as raised:
        int4.convert(tmp_path, blocked, params(form, block_size=size))
    assert raised.value.failure == "QUANTIZE"
    assert raised.value.hint


def test_weights_of_inner_graphs_and_scaled_products_stay(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["wide", "w"], ["a"]),
        helper.make_node("Gemm", ["wide", "v"], ["b"], alpha=0.5),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    model_file.save(wide(nodes, {"w": WEIGHT, "v": WEIGHT + 1}), tmp_path)
    _, told = int4.convert(tmp_path, (), params("MatMulNBits"))
    assert (told["weights"], told["left"]) == (1, 1)
    _, told = int4.convert(tmp_path, (), params("DequantizeLinear"))
    assert (told["weights"], told["left"]) == (2, 0)


def test_blocks_are_as_near_as_their_steps_allow() -> None:
    matrix = RANDOM.standard_normal((96, 5)).astype(np.float32)
    matrix[:32, 0] = 0  # a block of zeros has no scale
    for symmetric in (True, False):
        numbers, scales, zeros = int4.quantized(matrix, SIZE, symmetric=symmetric)
        assert (numbers.max() <= 15, scales.min() > 0) == (True, True)
        zero = np.full_like(numbers, 8) if zeros is None else np.repeat(zeros, SIZE, axis=0)
        restored = (numbers.astype(np.float32) - zero) * np.repeat(scales, SIZE, axis=0)
        assert np.abs(restored - matrix).max() <= scales.max() * 0.51
    assert int4.packed(np.array([1, 2, 3], np.uint8)).tolist() == [0x21, 0x03]
