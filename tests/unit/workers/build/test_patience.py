"""No wait is silent, and none has no end."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.status import FailureClass
from workers.build.disk_budget import DiskBudget
from workers.build.patience import TELL_AFTER, Patience
from workers.errors import BuildFailed
from workers.store import Store

KEY = "a" * 64


class Clock:
    """Seconds that pass only when they are asked for."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_wait_is_told_of_once_and_ends_when_nothing_moves() -> None:
    told: list[str] = []
    patience = Patience(10 * TELL_AFTER, told.append, Clock(TELL_AFTER))
    looks = 0
    while not patience.is_over("same", "a lock"):
        looks += 1
    assert told == ["waits for a lock"]
    assert looks == 11


def test_signs_of_life_renew_the_patience() -> None:
    patience = Patience(3.0, clock=Clock(2.0))
    assert not any(patience.is_over(number, "room") for number in range(20))


def test_the_lock_of_a_build_that_hangs_is_not_waited_for_without_end(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "store"), Store(tmp_path / "store")
    with (
        one.lock(KEY),
        pytest.raises(BuildFailed, match=r"another build has held .*aaa\.lock") as failed,
        two.lock(KEY, limit=0.0),
    ):
        pass
    assert failed.value.failure is FailureClass.TIMEOUT
    with two.lock(KEY, limit=0.0):
        pass


def test_room_that_a_hanging_build_keeps_is_not_waited_for_without_end(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "store"), Store(tmp_path / "store")
    budget = DiskBudget(two, 100, free=lambda _path: 1 << 50)
    with (
        one.in_use(),
        pytest.raises(BuildFailed, match="do not go on") as failed,
        budget.reserve(500, limit=0.0),
    ):
        pass
    assert failed.value.failure is FailureClass.DISK
    assert budget.waiting == 0
