"""Other work on the machine is told of."""

from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from workers.measure.load import Load

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
