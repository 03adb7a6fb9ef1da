"""What a context model refers to, and references that leave the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from workers.verify.checker import read_contexts


def wrapper(
    folder: Path, binary: str | bytes, *, embed: int = 0, main: int = 1, **more: Any
) -> None:
    node = helper.make_node(
        "EPContext", ["x"], ["y"], name="one", domain="com.microsoft",
        embed_mode=embed, main_context=main, ep_cache_context=binary, partition_name="part", **more,
    )  # fmt: skip
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]))
    entry = model.metadata_props.add()
    entry.key, entry.value = "ep_compatibility_info.QNNExecutionProvider", "v2:73"
    onnx.save(model, folder / "model.onnx")


def contexts(folder: Path) -> dict[str, Any]:
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    return read_contexts(model, folder, "model.onnx")


def test_a_binary_beside_the_model(tmp_path: Path) -> None:
    wrapper(tmp_path, "model_qnn.bin")
    (tmp_path / "model_qnn.bin").write_bytes(b"1")
    found = contexts(tmp_path)
    assert found["binaries"] == ["model_qnn.bin"]
    assert found["problems"] == []
    assert found["nodes"] == [{"partition": "part", "main": True, "embedded": False}]
    assert found["compatibility"] == {"QNNExecutionProvider": "v2:73"}


def test_an_embedded_context_names_no_file(tmp_path: Path) -> None:
    wrapper(tmp_path, b"\xff\xfe binary", embed=1)
    found = contexts(tmp_path)
    assert (found["binaries"], found["problems"]) == ([], [])
    assert found["nodes"][0]["embedded"]


def test_a_second_context_of_a_binary_need_not_name_it(tmp_path: Path) -> None:
    wrapper(tmp_path, "", main=0)
    assert contexts(tmp_path)["problems"] == []


@pytest.mark.parametrize(
    ("binary", "problem"),
    [
        ("../other.bin", "is outside the package"),
        ("/etc/passwd", "is outside the package"),
        ("C:\\windows\\x.bin", "is outside the package"),
        ("sub\\..\\..\\x.bin", "is outside the package"),
        ("absent.bin", "is missing"),
        (b"\xff\xfe.bin", "not in UTF-8"),
        ("", "names no binary"),
    ],
)
def test_references_that_cannot_be_used(tmp_path: Path, binary: str | bytes, problem: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "other.bin").write_bytes(b"1")
    wrapper(tmp_path / "package", binary)
    found = contexts(tmp_path / "package")
    assert found["binaries"] == []
    assert len(found["problems"]) == 1
    assert problem in found["problems"][0]


def test_a_link_does_not_lead_out_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "other.bin").write_bytes(b"1")
    (tmp_path / "package" / "model.bin").symlink_to(tmp_path / "other.bin")
    wrapper(tmp_path / "package", "model.bin")
    assert "outside" in contexts(tmp_path / "package")["problems"][0]


def test_an_ordinary_model_has_no_contexts(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]))
    onnx.save(model, tmp_path / "model.onnx")
    assert contexts(tmp_path)["nodes"] == []
