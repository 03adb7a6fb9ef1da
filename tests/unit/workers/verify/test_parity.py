from __future__ import annotations

import pytest

from matrix.verification import Threshold
from workers.verify.ladder.parity import apart, summary, too_far

NEAR = Threshold(0.999999, max_abs=0.5)


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


def test_a_value_that_misses_its_limit_never_reads_like_it() -> None:
    assert too_far({"cosine": 0.9999985, "error": 0.0}, NEAR) == "cosine 0.9999985 with the export"
    said = too_far({"agree": 0.9999985}, NEAR)
    assert said == "99.9998% of the values agree (limit 99.9999%)"
    off = too_far({"cosine": 1.0, "error": 0.0, "max_abs": 0.50001}, NEAR)
    assert off == "a value is off by 0.50001 (limit 0.5)"


def test_what_passed_is_not_rounded_up() -> None:
    rows = {"cpu": {"logits": {"cosine": 0.999999}}}
    assert list(summary(rows, NEAR)) == ["cosine 0.99999 or better with the export"]
