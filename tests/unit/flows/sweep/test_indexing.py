"""The sweep index finds a free revision, also where the feed shows less than is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from feed.errors import Conflict
from feed.index import SweepIndex
from feed.publisher import Publisher, Receipt
from flows.settings.resolution import resolve
from flows.sweep.index import publish_index
from matrix.model import Plan
from tests.fakes.feed import MemoryFeed

PLAN = Plan("1", (), "modelmill-index", "0.0.0-1", "optimum", self_contained=False)
EMPTY = SweepIndex("1", ())
SETTINGS = resolve({}, {}, Path())


class Refusing(Publisher):
    """Some versions were deleted for good: no listing shows them, and they stay taken."""

    def __init__(self, feed: MemoryFeed, taken: int) -> None:
        super().__init__(feed)
        self._left = taken

    def publish(self, package: str, version: str, *args: Any, **named: Any) -> Receipt:
        if self._left:
            self._left -= 1
            raise Conflict(f"{version} has been deleted, and cannot be republished")
        return super().publish(package, version, *args, **named)


@pytest.mark.parametrize(
    ("taken", "version"), [(0, "0.0.0-1"), (1, "0.0.0-1-r2"), (3, "0.0.0-1-r4")]
)
def test_revisions_that_no_listing_shows_are_passed_over(taken: int, version: str) -> None:
    feed = MemoryFeed()
    found = publish_index(feed, Refusing(feed, taken), PLAN, SETTINGS, EMPTY)
    assert found == version


def test_an_index_that_says_the_same_is_not_published_again() -> None:
    feed = MemoryFeed()
    for _ in range(2):
        found = publish_index(feed, Refusing(feed, 0), PLAN, SETTINGS, EMPTY)
        assert found == "0.0.0-1"
    assert feed.sends == 1
