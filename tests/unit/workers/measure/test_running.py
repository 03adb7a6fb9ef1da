"""Other work on the machine is told of, and times are kept exactly."""

from __future__ import annotations

import json
from collections import namedtuple

import psutil
import pytest

from workers.measure.benchmark import Load, Outcome, pack, unpack

Times = namedtuple("Times", "user system idle iowait")  # noqa: PYI024 - as psutil has it


@pytest.mark.parametrize(("others", "warned"), [(0.0, False), (3.0, True)])
def test_what_other_processes_used_is_the_rest(
    monkeypatch: pytest.MonkeyPatch, others: float, warned: bool
) -> None:
    looks = iter([Times(100, 10, 50, 5), Times(100 + 4 + others, 10, 60, 9)])
    clock = iter([0.0, 5.0])
    own = iter([1.0, 2.0])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(looks))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.process_time", lambda: next(own))
    load = Load()
    with load.window():
        pass
    load.own += 3.0
    assert load.others == pytest.approx(others / 10)
    assert bool(load.warnings()) is warned


def test_packed_times_come_back_exactly_and_small() -> None:
    times = [1_000_000 + (number * 7919) % 50_000 for number in range(1500)]
    text = pack(times)
    assert unpack(text) == times
    assert len(text) < 5 * len(times)
    assert unpack(pack([])) == []


@pytest.mark.parametrize("text", ["x", "AAAA", pack([1, 2, 3])[:-8], "häßlich"])
def test_damaged_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack(text)


def test_an_outcome_comes_back_as_it_was_kept() -> None:
    outcome = Outcome({"open_warm": 0.5, "nodes": {"CPU": 3}}, [[1, 2, 3], [4, 5]], 17)
    kept = json.loads(json.dumps(outcome.to_json()))
    assert Outcome.from_json(kept) == outcome
    with pytest.raises(ValueError, match="fewer times"):
        Outcome.from_json({**kept, "turns": [3, 3]})
