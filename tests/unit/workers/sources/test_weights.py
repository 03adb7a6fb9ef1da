"""Half-downloaded and unsafe weights are told apart from whole ones before torch sees them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.engines.sources import write_model, write_safetensors
from workers.engine import StageError
from workers.sources.weights import check_complete, matching, patterns


def refused(folder: Path, *, pickle: bool = False) -> StageError:
    with pytest.raises(StageError) as raised:
        check_complete(folder, "the model", pickle=pickle)
    assert raised.value.failure == "EXPORT"
    assert str(raised.value).startswith("the model: ")
    assert raised.value.hint
    return raised.value


def test_a_whole_model_passes(tmp_path: Path) -> None:
    check_complete(write_model(tmp_path), "the model", pickle=False)


@pytest.mark.parametrize("kept", [0, 7, 8, 20, 100, -1])
def test_every_truncation_is_noticed(tmp_path: Path, kept: int) -> None:
    file = write_model(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert "incomplete" in str(refused(tmp_path))


def test_bytes_too_many_are_noticed(tmp_path: Path) -> None:
    file = write_model(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"x")
    refused(tmp_path)


@pytest.mark.parametrize("header", [b"[]", b"{]", b'{"w": 3}', b'{"w": {"data_offsets": []}}'])
def test_a_damaged_header_is_noticed(tmp_path: Path, header: bytes) -> None:
    write_model(tmp_path)
    content = struct.pack("<Q", len(header)) + header
    (tmp_path / "model.safetensors").write_bytes(content)
    assert "damaged" in str(refused(tmp_path))


def test_a_header_that_claims_the_whole_disk_is_not_read(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors.incomplete", "x.part", "model.lock"])
def test_unfinished_downloads_are_noticed(tmp_path: Path, name: str) -> None:
    write_model(tmp_path)
    (tmp_path / name).write_bytes(b"")
    assert name in str(refused(tmp_path))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    write_safetensors(folder / names[0])
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": names[0], "b": names[1]}}), encoding="utf-8")
    assert f"{names[1]} is missing (1 of 2 shards)" in str(refused(folder))
    write_safetensors(folder / names[1])
    check_complete(folder, "the model", pickle=False)
    index.write_text("[1, 2", encoding="utf-8")
    assert "cannot be read" in str(refused(folder))


def test_pickles_need_permission(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pickles" in str(refused(folder))
    check_complete(folder, "the model", pickle=True)


def test_nothing_to_load_is_said(tmp_path: Path) -> None:
    assert "config.json" in str(refused(tmp_path))
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert "no weights" in str(refused(tmp_path))


def test_patterns_keep_to_their_folder() -> None:
    names = ["model.safetensors", "onnx/model.safetensors", "a.py", "pytorch_model.bin"]
    names += ["1_Pooling/config.json", "deep/1_Pooling/config.json", "README.md", "config.json"]
    safe = matching(names, patterns(pickle=False, remote_code=False))
    assert safe == ["1_Pooling/config.json", "config.json", "model.safetensors"]
    every = matching(names, patterns(pickle=True, remote_code=True))
    assert set(every) - set(safe) == {"a.py", "pytorch_model.bin"}
