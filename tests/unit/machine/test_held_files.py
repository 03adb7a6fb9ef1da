"""Files that another program holds for a moment, as virus scanners do on Windows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from machine import files
from machine.files import (
    create_exclusive,
    move,
    remove,
    remove_tree,
    replace_file,
    temporary_folder,
    unlink,
)
from machine.scratch import Scratch
from tests.machine.scanner import Held, Scanner


@pytest.fixture
def scanner(monkeypatch: pytest.MonkeyPatch) -> Scanner:
    return Scanner(monkeypatch)


def test_a_file_is_replaced_moved_and_removed_when_it_is_let_go(
    tmp_path: Path, scanner: Scanner
) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    replace_file(path, b"1")
    replace_file(path, b"2")
    move(path, other)
    assert other.read_bytes() == b"2"
    unlink(other)
    remove(other)
    assert list(tmp_path.iterdir()) == []
    assert scanner.refused.total() >= 6


def test_a_folder_goes_with_all_that_is_in_it(tmp_path: Path, scanner: Scanner) -> None:
    folder = tmp_path / "full"
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "deep/b"):
        (folder / name).touch()
    remove_tree(folder)
    assert not folder.exists()
    with temporary_folder("it-", tmp_path) as passing:
        (passing / "c").touch()
    assert list(tmp_path.iterdir()) == []


def test_the_folders_of_an_owner_go(tmp_path: Path, scanner: Scanner) -> None:
    scratch = Scratch(tmp_path)
    with scratch.borrow() as folder:
        (folder / "a").touch()
    scratch.close()
    assert not scratch.folder.exists()


def test_what_is_held_for_good_is_an_error_for_a_file_and_left_over_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "HELD_FOR", 0.05)
    Scanner(monkeypatch, times=10_000)
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    path.touch()
    with pytest.raises(Held):
        unlink(path)
    with pytest.raises(Held):
        move(path, tmp_path / "b")
    with temporary_folder("it-", tmp_path):
        pass  # its removal fails nobody
    remove_tree(path.parent)
    assert path.exists()


def test_other_errors_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    with pytest.raises(FileNotFoundError):
        move(tmp_path / "absent", tmp_path / "b")
    (tmp_path / "b").touch()
    (tmp_path / "c").touch()
    with pytest.raises(FileExistsError):
        create_exclusive(tmp_path / "c", tmp_path / "b")


def test_a_read_only_file_is_removed_and_replaced(tmp_path: Path) -> None:
    path, new = tmp_path / "a", tmp_path / "new"
    for _ in range(2):
        path.write_bytes(b"1")
        path.chmod(0o444)
        new.write_bytes(b"2")
        move(new, path)
        assert path.read_bytes() == b"2"
        path.chmod(0o444)
        unlink(path)
        assert not path.exists()
