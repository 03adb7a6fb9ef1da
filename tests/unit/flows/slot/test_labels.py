"""What a listing of the feed says of a precision that holds more bits than its name says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from flows.slot.publishing import _labels
from workers.build.built import Built


def labels(*facts: Any) -> list[str]:
    stages = [{"stage": "quantize", "facts": one} for one in facts]
    return _labels(cast("Built", SimpleNamespace(manifest={"stages": stages})))


def test_a_label_is_shown_once_where_it_says_more_than_the_precision() -> None:
    more = {"applied": {"label": "w8a16, 3 operators in float"}}
    assert labels({}, more, more) == ["(w8a16, 3 operators in float)"]
    assert labels({"applied": {"label": "w8a16"}}) == []
    assert labels({"applied": {"activations": "uint16"}}) == []
