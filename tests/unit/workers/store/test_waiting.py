"""No wait is silent, and none has no end."""

from __future__ import annotations

from pathlib import Path

import pytest

from machine.waits import WaitRules
from matrix.status import FailureClass
from workers.build.budgets import DiskBudget
from workers.errors import BuildFailed
from workers.store import Store

KEY = "a" * 64


def test_the_lock_of_a_build_that_hangs_is_not_waited_for_without_end(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "store"), Store(tmp_path / "store")
    with (
        one.lock(KEY),
        pytest.raises(BuildFailed, match=r"another process has held .*aaa\.lock") as failed,
        two.lock(KEY, WaitRules(0.0)),
    ):
        pass
    assert failed.value.failure is FailureClass.TIMEOUT
    with two.lock(KEY, WaitRules(0.0)):
        pass


def test_room_that_a_hanging_build_keeps_is_not_waited_for_without_end(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "store"), Store(tmp_path / "store")
    budget = DiskBudget(two, 100, free=lambda _path: 1 << 50)
    with (
        one.in_use(),
        pytest.raises(BuildFailed, match="do not go on") as failed,
        budget.reserve(500, WaitRules(0.0)),
    ):
        pass
    assert failed.value.failure is FailureClass.DISK
    assert budget.waiting == 0
