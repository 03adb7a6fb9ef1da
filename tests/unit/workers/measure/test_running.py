"""Other work on the machine is told of, and times are kept exactly."""

from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from tests.measuring.samples import unpack
from workers.measure.running import Load, pack

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
