from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from machine.ledger import Ledger
from machine.waits import Cancelled, WaitRules
from workers.build.budgets import MemoryBudget
from workers.errors import BuildFailed


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


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def budget(ledger: Ledger) -> MemoryBudget:
    return MemoryBudget(100, ledger=ledger)


def waits(ledger: Ledger, count: int) -> None:
    """Until so many stand in the queue."""
    pause = threading.Event()
    while True:
        with ledger.everybody() as entries:
            if sum(len(entry.waiting) for entry in entries) == count:
                return
        pause.wait(0.01)


def test_what_fits_runs_at_once_and_is_given_back(budget: MemoryBudget) -> None:
    with budget.reserve(60), budget.reserve(40):
        assert budget.reserved == 100
    assert budget.reserved == 0


def test_two_large_ones_do_not_start_together(budget: MemoryBudget, ledger: Ledger) -> None:
    first = Stage(budget, 60)
    assert first.runs.wait(60)
    second = Stage(budget, 60)
    waits(ledger, 1)
    assert not second.runs.is_set()
    first.end()
    assert second.runs.wait(60)
    second.end()


def test_what_is_larger_than_the_machine_runs_alone(budget: MemoryBudget, ledger: Ledger) -> None:
    with ExitStack() as small:
        small.enter_context(budget.reserve(10))
        huge = Stage(budget, 1000)
        waits(ledger, 1)
        assert not huge.runs.is_set()
    assert huge.runs.wait(60)
    huge.end()


def test_small_ones_do_not_pass_a_large_one_that_waits(
    budget: MemoryBudget, ledger: Ledger
) -> None:
    running = Stage(budget, 60)
    assert running.runs.wait(60)
    large = Stage(budget, 90)
    waits(ledger, 1)
    small = Stage(budget, 1)
    waits(ledger, 2)
    assert not small.runs.is_set()
    running.end()
    assert large.runs.wait(60)
    assert small.runs.wait(60)
    large.end()
    small.end()


def test_waiting_ends_with_a_cancel_and_leaves_the_queue_in_order(
    budget: MemoryBudget, ledger: Ledger
) -> None:
    cancel = threading.Event()
    cancel.set()
    with budget.reserve(80):
        with pytest.raises(Cancelled), budget.reserve(80, WaitRules(cancel=cancel)):
            raise AssertionError("started without memory")
        waits(ledger, 0)
        with budget.reserve(20):
            assert budget.reserved == 100


def test_a_stage_that_fails_gives_its_memory_back(budget: MemoryBudget) -> None:

    def fail() -> None:
        with budget.reserve(80):
            raise RuntimeError("crash")

    failing: Callable[[], None] = fail
    with pytest.raises(RuntimeError):
        failing()
    assert budget.reserved == 0


def test_the_budget_holds_for_all_participants_of_the_ledger(tmp_path: Path) -> None:
    one, two = (MemoryBudget(100, ledger=Ledger(tmp_path)) for _ in range(2))
    other = Stage(one, 60)
    assert other.runs.wait(60)
    assert two.reserved == 60
    with (
        pytest.raises(BuildFailed, match=r"waited 0 s for 0\.00 MB of memory, held by process"),
        two.reserve(60, WaitRules(0.0)),
    ):
        raise AssertionError("started without memory")
    other.end()
    with two.reserve(60):
        assert one.reserved == 60


def test_the_default_is_most_of_the_machine(tmp_path: Path) -> None:
    assert MemoryBudget(ledger=Ledger(tmp_path)).limit > 1 << 28
