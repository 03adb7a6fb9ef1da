"""The folder between a worker and its slots."""

from __future__ import annotations

import shutil
from pathlib import Path

from flows.fleet.worker import remove_abandoned
from flows.fleet.worker_folder import WorkerFolder
from tests.machine.dead import dead_name


def killed(folder: WorkerFolder) -> None:
    """Let the folder look as if another process had made it and were gone."""
    [owner] = folder.path.glob("owner-*")
    owner.rename(folder.path / f"owner-{dead_name()}")


def test_a_fresh_worker_lets_its_slots_work(tmp_path: Path) -> None:
    folder = WorkerFolder.make(tmp_path / "orders")
    assert not folder.draining
    assert not folder.stopping


def test_orders_are_seen_from_another_process(tmp_path: Path) -> None:
    folder, slot = WorkerFolder.make(tmp_path / "orders"), WorkerFolder(tmp_path / "orders")
    folder.drain()
    assert slot.draining
    assert not slot.stopping
    folder.stop()
    assert slot.stopping


def test_a_busy_slot_holds_the_worker_until_it_ends(tmp_path: Path) -> None:
    folder = WorkerFolder.make(tmp_path / "orders")
    with WorkerFolder(tmp_path / "orders").busy():
        assert len(folder.working()) == 1
        assert not folder.wait_until_idle(0.0)
    assert folder.wait_until_idle(0.0)


def test_a_slot_that_was_killed_holds_nobody(tmp_path: Path) -> None:
    folder = WorkerFolder.make(tmp_path / "orders")
    (folder.path / f"busy-{dead_name()}").touch()
    (folder.path / "busy-rubbish").touch()
    assert folder.working() == []


def test_slots_of_a_worker_that_was_killed_drain(tmp_path: Path) -> None:
    folder = WorkerFolder.make(tmp_path / "orders")
    killed(folder)
    assert folder.draining
    shutil.rmtree(folder.path)
    assert folder.draining


def test_folders_of_killed_workers_go_when_nobody_finishes_there(tmp_path: Path) -> None:
    folders = tmp_path / "fleet"
    for name in ("alive", "dead", "busy"):
        folder = WorkerFolder.make(folders / name)
        if name != "alive":
            killed(folder)
    (folders / "half.new").mkdir()
    with WorkerFolder(folders / "busy").busy():
        remove_abandoned(folders)
    assert sorted(one.name for one in folders.iterdir()) == ["alive", "busy", "half.new"]
    remove_abandoned(folders)
    assert sorted(one.name for one in folders.iterdir()) == ["alive", "half.new"]
