from __future__ import annotations

import pytest

from flows.output.quantity import parse_duration, parse_size, shortened, show_duration, show_size
from matrix.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1048576),
        ("20GB", 20 * 10**9),
        ("20 gb", 20 * 10**9),
        ("1.5K", 1500),
        ("512MiB", 512 * 2**20),
        ("2TiB", 2**41),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "20 G B", "5iB", "１２", "10%"])
def test_a_size_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="20GB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("900", 900), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("1d", 86400), ("1h30m", 5400)],
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("seconds", [30, 90, 1800, 5400, 86400, 90000, 2592000])
def test_a_time_that_is_shown_can_be_typed(seconds: int) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "0", "0h0m", "-5", "5 minutes", "5m3", "m", "nan", "inf"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_duration(text)


def test_quantities_are_shown_for_people() -> None:
    assert [show_size(n) for n in (0, 999, 1000, 12_345_678, 4 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 MB",
        "4.0 TB",
    ]
    assert [show_duration(n) for n in (0, 0.04, 9.94, 61, 125, 5400)] == [
        "0s",
        "40ms",
        "9.9s",
        "61s",
        "2m05s",
        "1h30m",
    ]


def test_days_are_told_as_days() -> None:
    assert show_duration(30 * 86400) == "30d"
    assert show_duration(50 * 3600) == "2d02h"


def test_what_is_too_long_loses_its_middle() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abc…fghijk"
    assert shortened("abcdefghijk", 0) == "a…k"
