"""A full disk: classified, cleaned up, and the next cell that fits is built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.status import FailureClass
from tests.fakes.engine import fake_spec
from tests.plans.cells import make_cell
from workers.build.budgets import DiskBudget
from workers.build.builder import Builder
from workers.errors import BuildFailed
from workers.host.client import EngineHost
from workers.host.watch import Watching
from workers.store import Store

MB = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A volume of 24 MB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small volume needs root on Linux")
    volume = tmp_path / "volume"
    volume.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(volume)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this system does not let us mount a tmpfs")
    try:
        yield volume
    finally:
        subprocess.run(["umount", "-l", str(volume)], check=True)


@pytest.fixture
def builder(small: Path, tmp_path: Path) -> Iterator[Builder]:
    store = Store(small / "store")
    made = Builder(store, EngineHost(fake_spec(), log_dir=tmp_path / "logs"), small / "work")
    yield made
    made.close()
    store.close()


@pytest.mark.parametrize("action", ["fill:64", "once:MARKER:fill:64"])
def test_a_stage_that_fills_the_disk_costs_one_cell(
    builder: Builder, tmp_path: Path, small: Path, action: str
) -> None:
    action = action.replace("MARKER", str(tmp_path / "marker"))
    cell = make_cell("big/model", salt="big", act={"optimize": action})
    with pytest.raises(BuildFailed) as failed:
        builder.build(cell, Watching(log=tmp_path / "cell.log"))
    assert failed.value.failure is FailureClass.DISK
    assert failed.value.retryable
    assert "--disk-budget" in failed.value.hint or "No space" in failed.value.reason
    assert shutil.disk_usage(small).free > 20 * MB
    builder.build(make_cell("small/model")).release()
    if action.startswith("once"):
        builder.build(cell).release()


def test_a_budget_evicts_instead_of_filling_the_disk(small: Path, tmp_path: Path) -> None:
    store = Store(small / "store")
    budget = DiskBudget(store, keep_free=2 * MB)
    host = EngineHost(fake_spec(), log_dir=tmp_path / "logs")
    builder = Builder(store, host, small / "work", budget=budget)
    for number in range(8):  # 8 x 9 MB of outputs on 24 MB
        cell = make_cell(f"model/{number}", salt=number, size=4 * MB, disk=10 * MB)
        builder.build(cell).release()
    with pytest.raises(BuildFailed, match=r"has .* GB free") as failed:
        builder.build(make_cell("huge/model", salt="huge", disk=100 * MB))
    assert failed.value.failure is FailureClass.DISK
    builder.close()
    store.close()


def test_a_read_only_store_is_one_clear_failure(builder: Builder, small: Path) -> None:
    builder.build(make_cell()).release()
    for how in (["--bind", str(small)], ["-o", "remount,ro,bind"]):
        subprocess.run(["mount", *how, str(small)], check=True)
    try:
        with pytest.raises(BuildFailed, match="Read-only file system") as failed:
            builder.build(make_cell(salt="new"))
        assert failed.value.failure is FailureClass.DISK
    finally:
        subprocess.run(["umount", str(small)], check=True)
    builder.build(make_cell(salt="new")).release()
