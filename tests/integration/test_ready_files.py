"""Ready ONNX files go through every stage but the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from matrix.policy import quantized
from tests.engines.hosted import SharedHost
from tests.engines.onnx_files import convolution
from tests.engines.optimum import builder, compare, export_of, inputs_of, plan_catalog
from workers.errors import BuildFailed

CATALOG = """
[defaults]
task = "image-classification"
[[model]]
id = "alone"
onnx = "alone.onnx"
[[model]]
id = "inside"
folder = "models"
onnx = "sub/wide.onnx"
[model.target.mlas_cpu]
shapes = { "p2o.Dynamic.2" = 48 }
"""


def test_a_ready_file_is_built_for_every_target(tmp_path: Path, optimum: SharedHost) -> None:
    convolution(tmp_path / "alone.onnx", opset=11)
    convolution(tmp_path / "models" / "sub" / "wide.onnx", external=True)
    (tmp_path / "models" / "preprocessor_config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "catalog.toml").write_text(CATALOG, encoding="utf-8")
    plan = plan_catalog("catalog.toml", tmp_path)
    with builder(tmp_path, optimum) as made:
        for number, cell in enumerate(plan.cells()):
            built = made.build(cell)
            folder = tmp_path / "out" / str(number)
            reference = export_of(made, plan, cell, folder / "export")
            inputs = inputs_of(built, folder / "inputs")
            package = built.move_to(folder / "package")
            lowest = 0.98 if quantized(cell.policy.precision) else 0.99999
            assert min(compare(reference, package, inputs).values()) > lowest, cell.id
            head = onnx.load(str(package / "model.onnx"))
            assert head.opset_import[0].version == 17  # 11 is too old for every target
            assert head.ir_version <= 10
            if cell.id == "inside:image-classification@mlas_cpu":
                assert _sizes(inputs)[2:] == (48, 224)
                assert (package / "preprocessor_config.json").is_file()


def _sizes(inputs: Path) -> tuple[int, ...]:
    with np.load(inputs / "judge" / "00.npz") as arrays:
        shape: tuple[int, ...] = arrays["image"].shape
    return shape


def _failure(tmp_path: Path, made: Any, **options: Any) -> str:
    (tmp_path / "catalog.toml").write_text(CATALOG.split('[[model]]\nid = "inside"', maxsplit=1)[0])
    cell = next(
        cell
        for cell in plan_catalog("catalog.toml", tmp_path, **options).cells()
        if cell.target.label == "mlas_cpu"
    )
    with pytest.raises(BuildFailed) as caught:
        made.build(cell)
    return caught.value.message


def test_a_file_that_cannot_be_built_says_why(tmp_path: Path, optimum: SharedHost) -> None:
    file = tmp_path / "alone.onnx"
    with builder(tmp_path, optimum) as made:
        for raw in (b"", b"not a model at all", b"\x08\x08"):
            file.write_bytes(raw)
            assert "alone.onnx is not an ONNX model" in _failure(tmp_path, made)
        convolution(file, external=True)
        (tmp_path / "weights.bin").unlink()
        assert "its weights in weights.bin are missing" in _failure(tmp_path, made)
        model = onnx.load(str(file), load_external_data=False)
        model.graph.initializer[0].external_data[0].value = "../secret"
        file.write_bytes(model.SerializeToString())
        assert "the weights of 'w' are outside the model's folder" in _failure(tmp_path, made)
        convolution(file)
        model = onnx.load(str(file))
        model.graph.node[1].op_type = "DynamicQuantizeLinear"
        model.graph.node[1].output.extend(["s", "z"])
        model.graph.node[2].op_type = "DequantizeLinear"
        model.graph.node[2].input.extend(["s", "z"])
        model.graph.output[0].type.tensor_type.shape.dim[2].Clear()
        model.graph.output[0].type.tensor_type.shape.dim[3].Clear()
        file.write_bytes(model.SerializeToString())
        text = _failure(tmp_path, made, precision=("w8a8",))
        assert "quantized already and cannot be made w8a8" in text
