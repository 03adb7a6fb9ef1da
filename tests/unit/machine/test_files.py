from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from machine.files import (
    CHUNK,
    blocks,
    created,
    hash_file,
    overwrite,
    read_whole,
    replace_file,
    write_all,
)
from machine.flush import flush_file


def test_a_file_is_read_in_pieces_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = bytes(range(256)) * (CHUNK // 256) + b"end"
    path.write_bytes(data)
    assert [len(block) for block in blocks(path)] == [CHUNK, 3]
    assert read_whole(path) == data
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "b")


def test_a_shorter_record_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data in (b"first", b"a longer one", b"short", b""):
        overwrite(path, data, sync=True)
        assert path.read_bytes() == data


def test_what_is_written_over_stays_the_same_file(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    overwrite(path, b"one")
    os.link(path, link)
    overwrite(path, b"two")
    assert link.read_bytes() == b"two"


def test_a_new_file_is_new(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with created(path) as file:
        write_all(file, b"x")
    flush_file(path)
    with pytest.raises(FileExistsError), created(path):
        pass
    assert path.read_bytes() == b"x"


def test_a_call_that_writes_a_part_is_followed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr("os.write", lambda file, data: write(file, data[:3]))
    overwrite(tmp_path / "a", b"ten bytes!")
    assert (tmp_path / "a").read_bytes() == b"ten bytes!"


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
