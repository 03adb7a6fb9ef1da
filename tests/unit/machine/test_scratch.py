from __future__ import annotations

from pathlib import Path

import pytest

from machine.files import remove_tree
from machine.scratch import GATE, Scratch, sweep_dead


def names_in(folder: Path) -> list[str]:
    """What lies there; the gate stays on POSIX, and goes with its last holder on Windows."""
    return sorted(path.name for path in folder.iterdir() if path.name != GATE)


def test_borrowed_folders_are_gone_afterwards_even_after_a_failure(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)

    def fail() -> None:
        with scratch.borrow() as folder:
            (folder / "deep" / "er").mkdir(parents=True)
            (folder / "deep" / "file").write_text("x")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        fail()
    assert list(scratch.folder.iterdir()) == []


def test_every_borrowed_folder_has_a_name_of_its_own(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    with scratch.borrow("out") as first, scratch.borrow("out") as beside:
        (first / "file").write_text("x")
        assert beside != first
    (first / "late").mkdir(parents=True)  # a tool may remember paths
    with scratch.borrow("out") as again:
        assert again not in {first, beside}
        assert list(again.iterdir()) == []
    scratch.close()
    assert not scratch.folder.exists()


def test_the_living_are_spared_and_the_dead_swept(tmp_path: Path) -> None:
    alive = Scratch(tmp_path)
    kept = alive.new_folder()
    dead = tmp_path / "4711-dead"
    (dead / "work").mkdir(parents=True)
    (dead / "work" / "big.bin").write_bytes(b"x")
    (tmp_path / "4711-dead.lock").touch()
    assert sweep_dead(tmp_path) == [dead]
    assert not dead.exists()
    assert not (tmp_path / "4711-dead.lock").exists()
    assert kept.is_dir()
    alive.close()
    assert names_in(tmp_path) == []


def test_the_lock_of_an_owner_that_died_without_a_folder_is_swept(tmp_path: Path) -> None:
    (tmp_path / "4711-dead.lock").touch()
    (tmp_path / "notes.txt").touch()
    sweep_dead(tmp_path)
    assert names_in(tmp_path) == ["notes.txt"]


def test_sweeping_where_nothing_is_does_nothing(tmp_path: Path) -> None:
    assert sweep_dead(tmp_path / "absent") == []
    remove_tree(tmp_path / "absent")
