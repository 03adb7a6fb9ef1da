"""The mean of the measured runs, from OpenVINO's running means."""

from __future__ import annotations

from typing import Any

import pytest

from workers.measure.trace.interpret import read_info
from workers.measure.trace.operators import NoData, Window


def row(name: str, before: int, after: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "Convolution", "before": before, "after": after, **more}


def test_runs_to_warm_up_do_not_count() -> None:
    rows = [row("a", 1000, 280, precision="f32,i8", dims=[1, 4], held=["x", "y"]), row("b", 0, 0)]
    found = read_info(rows, Window(20, 80))
    first, second = (one.operator() for one in found.series)
    assert first.avg_us == pytest.approx(100, abs=1)  # (100 x 280 - 20 x 1000) / 80
    assert (first.sample_count, first.samples_us, first.p90_us) == (80, (), None)
    assert first.total_us == pytest.approx(80 * first.avg_us)
    assert first.percent_of_total == pytest.approx(100)
    assert (first.data_type, first.dims) == ("f32", (1, 4))
    assert found.series[0].held == ("x", "y")
    assert second.avg_us == 0


def test_means_are_never_below_zero() -> None:
    found = read_info([row("a", 900, 1), row("b", 5, 5)], Window(10, 10))
    assert found.series[0].operator().avg_us == 0


@pytest.mark.parametrize("rows", [[], [row("a", 0, 0)]])
def test_no_times(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(NoData):
        read_info(rows, Window(1, 1))
