from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from machine.files import remove, remove_tree


def test_read_only_files_and_folders_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "c").write_text("x")
    (folder / "b" / "c").chmod(0o444)
    (folder / "b").chmod(0o555)
    remove_tree(folder)
    assert not folder.exists()


def test_a_link_to_elsewhere_is_removed_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "link").symlink_to(precious, target_is_directory=True)
    remove_tree(folder)
    assert (precious / "file").read_text() == "x"
    (tmp_path / "link").symlink_to(precious, target_is_directory=True)
    remove(tmp_path / "link")
    assert (precious / "file").read_text() == "x"


@pytest.mark.skipif(os.name == "nt", reason="folders have no such modes there")
def test_the_folder_around_it_keeps_its_mode(tmp_path: Path) -> None:
    around = tmp_path / "around"
    around.mkdir(mode=0o755)
    remove_tree(around / "absent")
    assert stat.S_IMODE(around.stat().st_mode) == 0o755


def test_a_file_and_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    remove(tmp_path / "a")
    remove(tmp_path / "a")
    assert not (tmp_path / "a").exists()
