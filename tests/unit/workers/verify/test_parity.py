from __future__ import annotations

import pytest

from matrix.verification import Limit
from workers.numerics.compare import apart, fault
from workers.verify.ladder.parity import summary

NEAR = Limit(snr=50.0, agreement=0.99, max_abs=0.5)


@pytest.mark.parametrize(
    ("value", "limit", "texts"),
    [
        (0.0212134, 0.02121, ("0.021213", "0.02121")),
        (0.5, 0.1, ("0.5", "0.1")),
        (0.99999, 1.0, ("0.99999", "1")),
    ],
)
def test_two_numbers_are_told_with_the_digits_that_part_them(
    value: float, limit: float, texts: tuple[str, str]
) -> None:
    assert apart(value, limit) == texts


def test_what_misses_its_limit_is_told_with_the_limit() -> None:
    assert fault({"snr": 49.9}, NEAR) == (
        "signal-to-noise ratio 49.9 dB against the export (limit 50)"
    )
    assert not fault({"snr": 50.0}, NEAR)
    off = fault({"snr": 60.0, "max_abs": 0.50001}, NEAR)
    assert off == "a value is off by 0.50001 (limit 0.5)"


def test_the_summary_tells_the_worst_of_all_outputs() -> None:
    rows = {
        "cpu": {"a": {"snr": 61.0, "agreement": 1.0, "decisions": 20}, "b": {"snr": 52.3}},
        "npu": {"a": {"snr": 55.0, "agreement": 0.995, "decisions": 16}},
    }
    assert list(summary(rows, NEAR)) == [
        "signal-to-noise ratio 52.3 dB or better against the export",
        "99.5% of 16 decisions agree",
    ]
