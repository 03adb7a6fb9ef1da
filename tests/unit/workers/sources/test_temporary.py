from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.sources.temporary import temporary_folder


class Session:
    """Something that only the garbage collector frees."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    gc.unfreeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def test_what_a_stage_held_is_free_at_its_end_and_what_stays_is_not_looked_through_again(
    tmp_path: Path,
) -> None:
    before = len(gc.get_objects())
    with temporary_folder(tmp_path) as folder:
        held = weakref.ref(Session())
    assert held() is None
    assert not folder.exists()
    assert len(gc.get_objects()) < before / 10


def test_what_an_error_held_is_free_after_the_next_stage(tmp_path: Path) -> None:
    held = []

    def fail() -> None:
        with temporary_folder(tmp_path):
            session = Session()
            held.append(weakref.ref(session))
            raise ValueError("a step failed")

    with pytest.raises(ValueError, match="a step failed"):
        fail()
    with temporary_folder(tmp_path):
        pass
    assert held[0]() is None
