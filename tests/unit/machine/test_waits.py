"""No wait is silent, and none has no end."""

from __future__ import annotations

from machine.waits import TELL_AFTER, Wait, WaitRules


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
    wait = Wait(WaitRules(10 * TELL_AFTER, told=told.append), Clock(TELL_AFTER))
    looks = 0
    while not wait.is_over("same", "a lock"):
        looks += 1
    assert told == ["waiting for a lock"]
    assert looks == 11


def test_signs_of_life_let_a_wait_go_on() -> None:
    wait = Wait(WaitRules(3.0), clock=Clock(2.0))
    assert not any(wait.is_over(number, "room") for number in range(20))
