from __future__ import annotations

from pathlib import Path

import pytest

from feed.directory import DirectoryFeed


@pytest.fixture
def feed(tmp_path: Path) -> DirectoryFeed:
    """An empty directory feed at tmp_path / "feed"."""
    made = DirectoryFeed(tmp_path / "feed")
    made.preflight()
    return made
