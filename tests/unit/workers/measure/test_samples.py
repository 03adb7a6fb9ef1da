"""Times are kept exactly, and damaged ones are told."""

from __future__ import annotations

import base64
import zlib

import pytest

from workers.measure.samples import pack, unpack


def test_packed_times_come_back_exactly_and_small() -> None:
    times = [1_000_000 + (number * 7919) % 50_000 for number in range(1500)]
    text = pack(times)
    assert unpack(text) == times
    assert len(text) < 5 * len(times)
    assert unpack(pack([])) == []


@pytest.mark.parametrize(
    "text",
    ["no base64!", "AAAA", pack([1, 2, 3])[:-8], base64.b64encode(zlib.compress(b"123")).decode()],
)
def test_what_is_no_packed_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack(text)
