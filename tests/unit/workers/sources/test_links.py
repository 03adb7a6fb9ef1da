"""No file of the build machine comes into a package by way of a link in a model's folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from machine.files import is_link
from tests.engines.sources import folder_source, make_request, write_model
from workers.engine import StageError
from workers.sources import model_file, onnx_graph, source, weight_file
from workers.sources.links import own_file, refuse_foreign
from workers.sources.ready_files import parts_of, side_files
from workers.verify.checker import inspect, references

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")

REPO = "models--org--name"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the machine that belongs to no model."""
    file = tmp_path / "elsewhere" / "id_rsa"
    file.parent.mkdir()
    file.write_bytes(np.arange(512, dtype=np.float32).tobytes())
    return file


@pytest.mark.parametrize("name", ["vocab.txt", "config.json", "model.safetensors", "LICENSE"])
def test_a_link_in_the_folder_of_a_model_is_refused_by_name(
    tmp_path: Path, secret: Path, name: str
) -> None:
    folder = write_model(tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    request = make_request(folder_source(folder))
    for read in (source.resolve, lambda asked: source.folder_of(asked, None, tmp_path)):
        with pytest.raises(StageError, match=f"^{name} in the model's folder is a link$") as raised:
            read(request)
        assert "put the file itself there" in raised.value.hint


@pytest.mark.parametrize("name", ["vocab.txt", "config.json", "model.safetensors", "LICENSE"])
def test_a_pipe_in_the_folder_of_a_model_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "model")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    request = make_request(folder_source(folder))
    for read in (source.resolve, lambda asked: source.folder_of(asked, None, tmp_path)):
        with pytest.raises(StageError, match=f"^{name} in the model's folder is not a file$"):
            read(request)


def test_a_folder_below_that_is_a_link_is_refused_too(tmp_path: Path, secret: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "1_Pooling").symlink_to(secret.parent, target_is_directory=True)
    (secret.parent / "config.json").write_text("{}", "utf-8")
    assert is_link(folder / "1_Pooling")
    with pytest.raises(StageError, match="1_Pooling in the model's folder is a link"):
        source.resolve(make_request(folder_source(folder)))
    with pytest.raises(StageError, match=r"1_Pooling/config\.json in the model's folder is a link"):
        own_file(folder, "1_Pooling/config.json")


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (tmp_path / "short").symlink_to(folder, target_is_directory=True)
    here, there = (
        source.resolve(make_request(folder_source(one))) for one in (tmp_path / "short", folder)
    )
    assert here == there


def test_nothing_is_copied_by_way_of_a_link(tmp_path: Path, secret: Path) -> None:
    folder = tmp_path / "stage"
    folder.mkdir()
    (folder / "vocab.txt").symlink_to(secret)
    with pytest.raises(StageError, match=r"vocab\.txt"):
        model_file.copy_side_files(folder, tmp_path / "out")


# -- the Hub's own cache


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the Hub's cache, which is reached by way of a link itself."""
    real = tmp_path / "cache"
    (tmp_path / "hub").symlink_to(real, target_is_directory=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / REPO / "snapshots" / ("c" * 40)
    (real / REPO / "blobs").mkdir(parents=True)
    (real / REPO / "blobs" / "abc").write_text("{}", "utf-8")
    folder.mkdir(parents=True)
    (folder / "config.json").symlink_to("../../blobs/abc")
    return folder


def test_the_hubs_links_to_its_own_blobs_are_followed(snapshot: Path) -> None:
    refuse_foreign(snapshot)
    assert own_file(snapshot, "config.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    "lead",
    [
        lambda snapshot, secret: secret,
        lambda snapshot, secret: Path("..", "..", "..", "models--other--one", "blobs", "abc"),
        lambda snapshot, secret: Path("..", "..", "blobs", "out", "id_rsa"),
        lambda snapshot, secret: Path("..", "..", "refs"),
    ],
)
def test_no_other_link_of_the_cache_is(
    snapshot: Path, secret: Path, lead: Callable[[Path, Path], Path]
) -> None:
    repo = snapshot.parent.parent
    (repo / "refs").mkdir()
    (repo / "blobs" / "out").symlink_to(secret.parent, target_is_directory=True)
    other = repo.parent / "models--other--one" / "blobs"
    other.mkdir(parents=True)
    (other / "abc").write_text("{}", "utf-8")
    (snapshot / "vocab.txt").symlink_to(lead(snapshot, secret))
    with pytest.raises(StageError, match=r"vocab\.txt"):
        refuse_foreign(snapshot)


def test_what_looks_like_the_cache_is_not_it(snapshot: Path, tmp_path: Path, secret: Path) -> None:
    """A folder that its maker has laid out like the Hub's."""
    model = tmp_path / "model" / REPO
    (model / "snapshots" / "x").mkdir(parents=True)
    (model / "blobs").symlink_to(secret.parent, target_is_directory=True)
    (model / "snapshots" / "x" / "vocab.txt").symlink_to("../../blobs/id_rsa")
    with pytest.raises(StageError, match=r"vocab\.txt"):
        refuse_foreign(model / "snapshots" / "x")
    assert snapshot.is_dir()


# -- the files that an ONNX file names


def outside(location: str) -> Any:
    """A tensor whose bytes are in a file."""
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    weight_file.refer(tensor, location, 0, 16)
    return tensor


def as_initializer(graph: Any, model: Any, tensor: Any) -> None:
    graph.initializer.append(tensor)


def as_constant(graph: Any, model: Any, tensor: Any) -> None:
    graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))


def in_a_function(graph: Any, model: Any, tensor: Any) -> None:
    body = [helper.make_node("Constant", [], ["o"], value=tensor)]
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "f", [], ["o"], body, imports))


def in_a_branch_of_a_function(graph: Any, model: Any, tensor: Any) -> None:
    port = helper.make_tensor_value_info("o", TensorProto.FLOAT, [4])
    branch = helper.make_graph([], "b", [], [port], initializer=[tensor])
    body = [helper.make_node("If", ["i"], ["o"], then_branch=branch, else_branch=branch)]
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "f", ["i"], ["o"], body, imports))


def as_sparse_values(graph: Any, model: Any, tensor: Any) -> None:
    indices = numpy_helper.from_array(np.arange(4), "i")
    graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [9]))


def as_sparse_indices(graph: Any, model: Any, tensor: Any) -> None:
    values = numpy_helper.from_array(np.zeros(4, np.float32), "v")
    graph.sparse_initializer.add().CopyFrom(helper.make_sparse_tensor(values, tensor, [9]))


def as_a_sparse_constant(graph: Any, model: Any, tensor: Any) -> None:
    node, indices = helper.make_node("Constant", [], ["c"]), numpy_helper.from_array(np.arange(4))
    attribute = node.attribute.add()
    attribute.name, attribute.type = "sparse_value", onnx.AttributeProto.SPARSE_TENSOR
    attribute.sparse_tensor.CopyFrom(helper.make_sparse_tensor(tensor, indices, [9]))
    graph.node.append(node)


def in_training(graph: Any, model: Any, tensor: Any) -> None:
    model.training_info.add().algorithm.initializer.append(tensor)


PLACES = (
    as_initializer,
    as_constant,
    in_a_function,
    in_a_branch_of_a_function,
    as_sparse_values,
    as_sparse_indices,
    as_a_sparse_constant,
    in_training,
)


def onnx_file(folder: Path, hide: Callable[[Any, Any, Any], None], location: str) -> None:
    folder.mkdir(exist_ok=True)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    hide(model.graph, model, outside(location))
    (folder / "model.onnx").write_bytes(model.SerializeToString())


@pytest.mark.parametrize("hide", PLACES)
@pytest.mark.parametrize("how", ["link", "leads out"])
def test_no_tensor_of_a_ready_file_is_read_from_elsewhere(
    tmp_path: Path, secret: Path, hide: Callable[[Any, Any, Any], None], how: str
) -> None:
    folder = tmp_path / "model"
    onnx_file(folder, hide, "w.data" if how == "link" else "../elsewhere/id_rsa")
    if how == "link":
        (folder / "w.data").symlink_to(secret)
    says = "is a link" if how == "link" else "outside the model's folder"
    with pytest.raises(StageError, match=says):
        parts_of(folder, "model.onnx")
    with pytest.raises(StageError, match=says):
        model_file.load(folder / "model.onnx")
    with pytest.raises(StageError, match=says):
        model_file.save(model_file.load_graph(folder), tmp_path / "out", folder)
    assert "external data" in inspect(folder, folder / "model.onnx")["problems"][0]
    with pytest.raises(ValueError, match="external data"):
        references(folder, "model.onnx")


@pytest.mark.parametrize("hide", PLACES)
def test_a_model_that_is_handed_on_holds_every_tensor_itself(
    tmp_path: Path, hide: Callable[[Any, Any, Any], None]
) -> None:
    folder = tmp_path / "model"
    onnx_file(folder, hide, "w.data")
    (folder / "w.data").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    assert parts_of(folder, "model.onnx") == ["model.onnx", "w.data"]
    model_file.save(model_file.load_graph(folder), tmp_path / "out", folder)
    made = onnx_graph.load(tmp_path / "out" / "model.onnx")
    found = list(onnx_graph.all_tensors(made))
    assert found
    assert not any(map(onnx_graph.external, found))


def test_a_ready_file_and_what_lies_beside_it_are_no_links(tmp_path: Path, secret: Path) -> None:
    folder = tmp_path / "model"
    onnx_file(folder, as_initializer, "w.data")
    (folder / "w.data").write_bytes(bytes(16))
    (folder / "tokenizer.json").symlink_to(secret)
    request = make_request({**folder_source(folder), "file": "model.onnx"})
    with pytest.raises(StageError, match=r"tokenizer\.json"):
        source.resolve(request)
    (folder / "tokenizer.json").unlink()
    (folder / "other.onnx").symlink_to(folder / "model.onnx")
    with pytest.raises(StageError, match=r"other\.onnx"):
        parts_of(folder, "other.onnx")
    assert side_files(folder) == []


def test_a_compiled_context_is_no_model_to_build(tmp_path: Path) -> None:
    def context(graph: Any, model: Any, tensor: Any) -> None:
        body = [
            helper.make_node("EPContext", [], ["o"], name="one", domain="com.microsoft",
                             embed_mode=0, ep_cache_context="../elsewhere/id_rsa")
        ]  # fmt: skip
        imports = [helper.make_opsetid("com.microsoft", 1)]
        model.functions.append(helper.make_function("own", "f", [], ["o"], body, imports))

    onnx_file(tmp_path / "model", context, "")
    with pytest.raises(StageError, match="node one is a compiled context"):
        parts_of(tmp_path / "model", "model.onnx")
    problems = inspect(tmp_path / "model", tmp_path / "model" / "model.onnx")["problems"]
    assert "its binary ../elsewhere/id_rsa is outside the package" in problems[0]
