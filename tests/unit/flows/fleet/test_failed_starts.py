"""Slot runs that fail at once: when they are tried again, and what is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.fleet.slot_runs import FIRST_PAUSE, LONGEST_PAUSE, FailedStarts, failed_starts

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def ended(
    state: Any, ago: float = 0, took: float | None = 1, queue: str = "q", *, began: bool = True
) -> Any:
    when = NOON - timedelta(seconds=ago)
    return SimpleNamespace(
        state=state,
        work_queue_name=queue,
        start_time=when if began else None,
        end_time=when,
        total_run_time=None if took is None else timedelta(seconds=took),
    )


def test_failures_count_back_to_the_last_run_that_did_better() -> None:
    runs = [
        ended(Crashed(message="the last")),
        ended(Cancelled(), 1, None, began=False),
        ended(Failed(message="the one before"), 2),
        ended(Completed(), 3),
        ended(Failed(message="long ago"), 4),
        ended(Failed(), 5, queue="other"),
    ]
    found = failed_starts(runs)
    assert found["q"] == FailedStarts(2, NOON, "the last")
    assert found["other"].count == 1


@pytest.mark.parametrize(
    "run",
    [ended(Completed()), ended(Crashed(), took=60), ended(Cancelled()), ended(Completed(), 9)],
)
def test_a_run_that_worked_or_crashed_late_says_nothing_of_its_machine(run: Any) -> None:
    assert failed_starts([run, ended(Failed(), 10)]) == {}


def test_a_slot_that_says_that_it_cannot_work_counts_however_long_it_has_worked() -> None:
    run = ended(Failed(message="the feed is unavailable"), took=3600)
    assert failed_starts([run])["q"] == FailedStarts(1, NOON, "the feed is unavailable")


def test_a_run_that_never_counted_its_time_failed_at_once() -> None:
    assert failed_starts([ended(Crashed(message="no such module"), took=None)])["q"].count == 1


@pytest.mark.parametrize(
    ("count", "pause"),
    [(1, 0.0), (2, 0.0), (3, FIRST_PAUSE), (5, FIRST_PAUSE * 4), (40, LONGEST_PAUSE)],
)
def test_pauses_grow_to_a_limit(count: int, pause: float) -> None:
    failed = FailedStarts(count, NOON, "")
    assert failed.lasting == (pause > 0)
    assert not failed.pausing(NOON + timedelta(seconds=pause))
    if pause:
        assert failed.pausing(NOON + timedelta(seconds=pause - 1))
