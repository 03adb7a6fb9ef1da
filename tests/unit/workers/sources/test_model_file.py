"""ONNX files: clean, whole, one external file, and only from their own folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.engines import graphs
from workers.engine import StageError
from workers.sources import model_file, onnx_graph, weight_file


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "EXTERNAL_THRESHOLD", 2000)


def test_nothing_of_the_machine_is_written(tmp_path: Path) -> None:
    model_file.save(graphs.matmul(), tmp_path)
    content = (tmp_path / "model.onnx").read_bytes()
    assert b"somewhere" not in content
    assert b"site-packages" not in content
    assert b"com.microsoft" not in content
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_domains_in_use_are_kept(tmp_path: Path) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    model_file.save(graphs.model([node], {}), tmp_path)
    made = model_file.load(tmp_path / "model.onnx")
    assert {item.domain for item in made.opset_import} == {"", "com.microsoft"}
    assert onnx_graph.facts(made) == {"opset": 17, "ir": 8, "nodes": 1, "contrib_nodes": 1}


def test_external_data_is_one_file_and_comes_back(tmp_path: Path, small: None) -> None:
    model = graphs.matmul()
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    model_file.save(model, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.onnx.data"}
    os.link(tmp_path / "model.onnx.data", tmp_path / "second-name")
    loaded = model_file.load(tmp_path / "model.onnx")
    assert (onnx.numpy_helper.to_array(loaded.graph.initializer[0]) == weight).all()
    again = tmp_path / "again"
    model_file.save(loaded, again)
    for name in ("model.onnx", "model.onnx.data"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("location", ["../model.onnx.data", "/etc/passwd", "..", "a/b"])
def test_external_data_elsewhere_is_refused(tmp_path: Path, small: None, location: str) -> None:
    model_file.save(graphs.matmul(), tmp_path)
    model = onnx.load(str(tmp_path / "model.onnx"), load_external_data=False)
    for item in model.graph.initializer[0].external_data:
        if item.key == "location":
            item.value = location
    onnx.save(model, str(tmp_path / "model.onnx"))
    with pytest.raises(StageError, match="outside the model's folder"):
        model_file.load(tmp_path / "model.onnx")


def test_truncated_external_data_is_refused(tmp_path: Path, small: None) -> None:
    model_file.save(graphs.matmul(), tmp_path)
    data = tmp_path / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(StageError, match="incomplete"):
        model_file.load(tmp_path / "model.onnx")


def test_invented_names_are_set_apart() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["inner"]),
        helper.make_node("Reshape", ["inner", "shape_token_0"], ["y"]),
    ]
    weights = {"w": np.ones((8, 4), np.float32), "shape_token_0": np.array([-1, 4])}
    model = graphs.model(nodes, weights)
    for _ in range(2):
        model_file.set_apart(model, {"w"})
        names = {tensor.name for tensor in model.graph.initializer}
        assert names == {"w", "optimized/shape_token_0"}
        assert list(model.graph.node[1].input) == ["optimized/inner", "optimized/shape_token_0"]
        assert list(model.graph.node[1].output) == ["y"]
    onnx.checker.check_model(model)


def test_side_files_are_only_known_ones(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "1_Pooling/config.json", "model.onnx", "secret.env", "vocab.txt"):
        (source / name).write_text("{}", encoding="utf-8")
    out = tmp_path / "out"
    model_file.copy_side_files(source, out)
    copied = sorted(file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file())
    assert copied == ["1_Pooling/config.json", "config.json", "vocab.txt"]


def test_a_component_is_found_in_each_layout(tmp_path: Path) -> None:
    model_file.save(graphs.matmul(), tmp_path / "all" / "encoder")
    own = tmp_path / "all" / "encoder"
    assert model_file.find(tmp_path / "all", "encoder") == own / "model.onnx"
    assert model_file.find(own, "encoder") == own / "model.onnx"
    assert model_file.folder_of(tmp_path / "all", "encoder", tmp_path) == own
    with pytest.raises(StageError, match="'decoder'"):
        model_file.find(tmp_path / "all", "decoder")
    onnx.save(graphs.matmul(), tmp_path / "all" / "decoder.onnx")
    assert model_file.find(tmp_path / "all", "decoder") == tmp_path / "all" / "decoder.onnx"


def test_a_component_that_shares_its_weights_gets_a_folder_of_its_own(
    tmp_path: Path, small: None
) -> None:
    source, temp = tmp_path / "export", tmp_path / "temp"
    model_file.save(graphs.matmul(), source)
    (source / "model.onnx").rename(source / "decode.onnx")
    (source / "config.json").write_text("{}", "utf-8")
    alone = model_file.folder_of(source, "decode", temp)
    assert sorted(one.name for one in alone.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert alone.is_relative_to(temp)
    model_file.load(alone / "model.onnx")


def test_operators_outside_the_standard_are_found() -> None:
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y"])
    weights = {"w": np.ones(8, np.float32)}
    assert onnx_graph.unknown(graphs.model([node], weights)) == []
    assert onnx_graph.unknown(graphs.model([node], weights, opset=16)) == ["LayerNormalization"]
    node.op_type = "SimplifiedLayerNormalization"
    assert onnx_graph.unknown(graphs.model([node], weights)) == ["SimplifiedLayerNormalization"]
    node.domain = "com.microsoft"
    assert onnx_graph.unknown(graphs.model([node], weights)) == []


def test_a_graph_without_its_weights_is_saved_with_those_of_its_source(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, source = tmp_path / "whole", tmp_path / "source"
    for folder in (whole, source):
        model_file.save(graphs.matmul(), folder)
    graph = model_file.load_graph(source)
    assert not graph.graph.initializer[0].raw_data
    model_file.save(graph, tmp_path / "again", source)
    for name in ("model.onnx", "model.onnx.data"):
        assert (tmp_path / "again" / name).read_bytes() == (whole / name).read_bytes()
    monkeypatch.setattr(model_file, "EXTERNAL_THRESHOLD", 1 << 30)
    model_file.save(model_file.load_graph(source), tmp_path / "inside", source)
    assert [file.name for file in (tmp_path / "inside").iterdir()] == ["model.onnx"]
    (source / "model.onnx.data").unlink()
    with pytest.raises(StageError, match="are missing"):
        model_file.save(model_file.load_graph(source), tmp_path / "none", source)


def test_values_are_mapped_where_they_lie(tmp_path: Path, small: None) -> None:
    model = graphs.matmul()
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert (weight_file.values(model.graph.initializer[0], tmp_path) == weight).all()
    model_file.save(model, tmp_path)
    (tensor,) = model_file.load_graph(tmp_path).graph.initializer
    assert (weight_file.values(tensor, tmp_path) == weight).all()
    data = tmp_path / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(StageError, match="incomplete"):
        weight_file.values(tensor, tmp_path)


def test_four_bits_take_half_a_byte() -> None:
    for kind, size in ((onnx.TensorProto.INT4, 8), (onnx.TensorProto.FLOAT16, 30)):
        tensor = onnx.TensorProto(dims=[3, 5], data_type=kind)
        assert onnx_graph.tensor_bytes(tensor) == size
