from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from machine.files import CHUNK, blocks, hash_file, read_json, replace_file


def test_a_file_is_read_in_pieces_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = bytes(range(256)) * (CHUNK // 256) + b"end"
    path.write_bytes(data)
    assert [len(block) for block in blocks(path)] == [CHUNK, 3]
    assert b"".join(blocks(path)) == data


def test_a_file_is_replaced_whole_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a"
    replace_file(path, b"first, longer")
    replace_file(path, b"second", sync=True)
    assert path.read_bytes() == b"second"
    assert [one.name for one in path.parent.iterdir()] == ["a"]
    beside = tmp_path / "beside"
    beside.mkdir()
    replace_file(path, b"third", beside=beside)
    assert path.read_bytes() == b"third"
    assert list(beside.iterdir()) == []


def test_a_half_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"old")

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(target, b"new", sync=True)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_one_read_hashes_and_copies(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    assert hash_file(tmp_path / "a", tmp_path / "b") == hash_file(tmp_path / "a") == (digest, 3)
    assert (tmp_path / "b").read_bytes() == b"abc"


def test_a_json_file_is_a_file_of_limited_size(tmp_path: Path) -> None:
    good, large = tmp_path / "good.json", tmp_path / "large.json"
    good.write_text('{"a": 1}', encoding="utf-8")
    large.write_text('"' + "a" * 100 + '"', encoding="utf-8")
    assert read_json(good) == {"a": 1}
    with pytest.raises(ValueError, match=r"large.json has 102 bytes, more than 50"):
        read_json(large, most=50)
    with pytest.raises(ValueError, match="is not a file"):
        read_json(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
def test_a_pipe_in_place_of_a_json_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match=r"pipe.json is not a file"):
        read_json(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="null is not a file"):
        read_json(Path(os.devnull))
    with pytest.raises(OSError, match="it is not a file"):
        hash_file(tmp_path / "pipe.json")
    with pytest.raises(OSError, match="it is not a file"):
        replace_file(tmp_path / "pipe.json", b"{}")
    assert (tmp_path / "pipe.json").is_fifo()
