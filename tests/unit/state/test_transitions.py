from __future__ import annotations

from matrix.status import Status
from state.transitions import FINAL, SOURCES


def test_final_statuses_are_never_left() -> None:
    for sources in SOURCES.values():
        assert not sources & FINAL
    assert set(SOURCES) == set(Status)
