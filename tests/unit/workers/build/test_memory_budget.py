from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from workers.build.memory_budget import MemoryBudget
from workers.errors import Cancelled


class Stage:
    """A stage on a thread of its own that runs until it is told to end."""

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self.runs, self.ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, args=(budget, size), daemon=True)
        self._thread.start()

    def _work(self, budget: MemoryBudget, size: int) -> None:
        with budget.reserve(size):
            self.runs.set()
            self.ends.wait()

    def end(self) -> None:
        self.ends.set()
        self._thread.join()


def waits(budget: MemoryBudget, count: int) -> None:
    """Until so many stand in the queue."""
    with budget._changed:
        assert budget._changed.wait_for(lambda: len(budget._queue) == count, timeout=10)


def test_what_fits_runs_at_once_and_is_given_back() -> None:
    budget = MemoryBudget(100)
    with budget.reserve(60), budget.reserve(40):
        assert budget.reserved == 100
    assert budget.reserved == 0


def test_two_large_ones_do_not_start_together() -> None:
    budget = MemoryBudget(100)
    first = Stage(budget, 60)
    assert first.runs.wait(10)
    second = Stage(budget, 60)
    waits(budget, 1)
    assert not second.runs.is_set()
    first.end()
    assert second.runs.wait(10)
    second.end()


def test_what_is_larger_than_the_machine_runs_alone() -> None:
    budget = MemoryBudget(100)
    with ExitStack() as small:
        small.enter_context(budget.reserve(10))
        huge = Stage(budget, 1000)
        waits(budget, 1)
        assert not huge.runs.is_set()
    assert huge.runs.wait(10)
    huge.end()


def test_small_ones_do_not_pass_a_large_one_that_waits() -> None:
    budget = MemoryBudget(100)
    running = Stage(budget, 60)
    assert running.runs.wait(10)
    large = Stage(budget, 90)
    waits(budget, 1)
    small = Stage(budget, 1)
    waits(budget, 2)
    assert not small.runs.is_set()
    running.end()
    assert large.runs.wait(10)
    assert small.runs.wait(10)
    large.end()
    small.end()


def test_waiting_ends_with_a_cancel_and_leaves_the_queue_in_order() -> None:
    budget, cancel = MemoryBudget(100), threading.Event()
    cancel.set()
    with budget.reserve(80):
        with pytest.raises(Cancelled), budget.reserve(80, cancel):
            raise AssertionError("started without memory")
        waits(budget, 0)
        with budget.reserve(20):
            assert budget.reserved == 100


def test_a_stage_that_fails_gives_its_memory_back() -> None:
    budget = MemoryBudget(100)

    def fail() -> None:
        with budget.reserve(80):
            raise RuntimeError("crash")

    failing: Callable[[], None] = fail
    with pytest.raises(RuntimeError):
        failing()
    assert budget.reserved == 0


def test_the_default_is_most_of_the_machine() -> None:
    assert MemoryBudget().limit > 1 << 28
