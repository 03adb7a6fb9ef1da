from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine.ledger import Reservation
from machine.waits import WITHOUT_LIMIT, WaitRules
from matrix.model import Cell
from tests.engines.builder import BuilderHarness
from tests.plans.cells import make_cell
from workers.build.budgets import DiskBudget, MemoryBudget
from workers.build.builder import Builder, BuildOptions
from workers.store import usage_of


class Remembering:
    """What builds took before."""

    def disk_of(self, cell: Cell, stage: str, _component: str) -> int:
        return 77 if (cell.target.label, stage) == ("ov_cpu", "export") else 0

    def memory_of(self, _cell: Cell, _stage: str, _component: str) -> int:
        return 0


def test_disk_is_reserved_only_for_what_really_runs_and_stage_by_stage(tmp_path: Path) -> None:
    harness = BuilderHarness(tmp_path)
    claimed: list[int] = []

    class Counting(DiskBudget):
        def claim(self, size: int) -> Reservation | None:
            assert self.reserved == 0, "the stage before has given back what it had"
            claimed.append(size)
            return super().claim(size)

    options = BuildOptions(expected=Remembering())
    budget = Counting(harness.store, 10**9, free=lambda _path: 1 << 50)
    builder = Builder(harness.store, harness.host, tmp_path / "w", options, budget=budget)
    for _ in range(2):
        builder.build(make_cell(disk=55))
    assert claimed == [55, 55, 55]
    builder.build(make_cell("other/model", label="ov_cpu", disk=55, salt="other"))
    assert claimed[3:] == [2 * 77, 55, 55]
    assert budget.reserved == 0


def test_a_build_that_finds_no_room_waits_with_nothing_in_use_and_counts_nothing_twice(
    tmp_path: Path,
) -> None:
    harness = BuilderHarness(tmp_path)
    waited: list[tuple[int, int]] = []

    class Crowding(DiskBudget):
        def claim(self, size: int) -> Reservation | None:
            # The export finds room; what comes after it does not.
            return None if usage_of(harness.store.root).actions else super().claim(size)

        @contextmanager
        def reserve(
            self,
            size: int,
            rules: WaitRules = WITHOUT_LIMIT,
            *,
            whole: int = 0,
        ) -> Iterator[int]:
            assert not harness.store.used()
            assert self.reserved == 0
            waited.append((size, whole))
            harness.store.gc(0)  # others took the room that the export had
            with super().reserve(size, rules, whole=whole) as amount:
                yield amount

    budget = Crowding(harness.store, 10**9, free=lambda _path: 1 << 50)
    builder = Builder(harness.store, harness.host, tmp_path / "w", budget=budget)
    built = builder.build(make_cell(disk=55))
    assert waited == [(55, 55)]
    assert [(run.stage, run.reused) for run in built.stages] == [
        ("export", False),
        ("inputs", False),
        ("optimize", False),
    ]
    built.let_go()
    assert budget.reserved == 0
    assert not harness.store.used()


def test_what_a_build_made_before_it_had_to_wait_is_not_called_reused(tmp_path: Path) -> None:
    harness = BuilderHarness(tmp_path)

    class Crowding(DiskBudget):
        def claim(self, size: int) -> Reservation | None:
            return None if usage_of(harness.store.root).actions else super().claim(size)

    budget = Crowding(harness.store, 10**9, free=lambda _path: 1 << 50)
    builder = Builder(harness.store, harness.host, tmp_path / "w", budget=budget)
    built = builder.build(make_cell(disk=55))
    assert [run.reused for run in built.stages] == [False, False, False]
    assert builder.build(make_cell(disk=55)).stages[0].reused


def test_every_stage_that_runs_waits_for_its_memory(tmp_path: Path) -> None:
    harness = BuilderHarness(tmp_path)
    asked: list[tuple[str, int]] = []

    class Noted(MemoryBudget):
        @contextmanager
        def reserve(
            self, size: int, rules: WaitRules = WITHOUT_LIMIT, **how: Any
        ) -> Iterator[None]:
            asked.append(("begin", size))
            with super().reserve(size, rules, **how):
                yield
            asked.append(("end", self.reserved))

    class Sized(Remembering):
        def memory_of(self, _cell: Cell, stage: str, _component: str) -> int:
            return {"export": 70, "inputs": 10, "optimize": 0}[stage]

    options = BuildOptions(expected=Sized())
    builder = Builder(harness.store, harness.host, tmp_path / "w", options, memory=Noted(100))
    builder.build(make_cell())
    assert asked == [("begin", 70), ("end", 0), ("begin", 10), ("end", 0), ("begin", 0), ("end", 0)]
    builder.build(make_cell())
    assert len(asked) == 6  # what is reused takes no memory
    builder.close()
