from __future__ import annotations

import os
from pathlib import Path

import pytest

from machine.folders import remove_tree
from machine.scratch import Scratch, sweep_dead


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


def test_a_borrowed_folder_is_given_out_again_with_nothing_in_it(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    with scratch.borrow("out") as first:
        (first / "deep" / "er").mkdir(parents=True)
        (first / "deep" / "file").write_text("x")
        (first / "file").write_text("x")
        with scratch.borrow("out") as beside:
            assert beside != first
    with scratch.borrow("out") as again, scratch.borrow("other"):
        assert again not in {first, beside}  # a tool may have kept something by its path
        assert list(again.iterdir()) == []
        kept = [path for path in scratch.folder.iterdir() if path.name.startswith("out-")]
        assert len(kept) == 2
    scratch.close()
    assert not scratch.folder.exists()


def test_what_somebody_writes_into_a_folder_that_waits_is_not_handed_on(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    with scratch.borrow("out") as remembered:
        pass
    (remembered / "late").mkdir()
    with scratch.borrow("out") as folder:
        assert list(folder.iterdir()) == []
    package = scratch.take("package")
    (package / "record.json").write_text("{}")
    (package / "model").write_text("x")
    scratch.give_back(package, keep={"record.json"})
    again = scratch.take("package")
    assert [path.name for path in again.iterdir()] == ["record.json"]
    scratch.give_back(again, keep={"record.json"})
    (again / "late").write_text("x")
    assert list(scratch.take("package").iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="folders have no such modes there")
def test_a_folder_that_somebody_closed_is_not_given_out_again(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    with scratch.borrow() as first:
        (first / "file").write_text("x")
        first.chmod(0o000)
    with scratch.borrow() as again:
        assert again != first
        (again / "file").write_text("x")


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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gate.lock"]


def test_the_lock_of_an_owner_that_died_without_a_folder_is_swept(tmp_path: Path) -> None:
    (tmp_path / "4711-dead.lock").touch()
    (tmp_path / "notes.txt").touch()
    sweep_dead(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gate.lock", "notes.txt"]


def test_sweeping_where_nothing_is_does_nothing(tmp_path: Path) -> None:
    assert sweep_dead(tmp_path / "absent") == []
    remove_tree(tmp_path / "absent")
