from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from feed.errors import NotFound, Rejected
from feed.layout import MARKER, Layout
from machine.processes import MAX_AGE, claim
from tests.machine.dead import dead_name


def test_a_folder_that_is_not_empty_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(Rejected, match="not empty"):
        DirectoryFeed(tmp_path).preflight()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_empty_or_missing_folder_becomes_a_feed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there", "not/there"):
        DirectoryFeed(tmp_path / name).preflight()
        assert (tmp_path / name / MARKER).is_file()
        DirectoryFeed(tmp_path / name).preflight()


def test_reading_makes_no_feed(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no directory feed"):
        DirectoryFeed(tmp_path / "new").packages()
    assert not (tmp_path / "new").exists()


def test_what_a_dead_founder_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f".modelmill-feed-{dead_name()}").touch()
    feed = DirectoryFeed(tmp_path)
    feed.preflight()
    feed.sweep_stale()
    assert list(tmp_path.glob(".modelmill-feed-*")) == []


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"feed": "modelmill"}', b"\xff"])
def test_a_marker_of_something_else(tmp_path: Path, data: bytes) -> None:
    (tmp_path / MARKER).write_bytes(data)
    with pytest.raises(Rejected, match=MARKER):
        Layout(tmp_path).check()


def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text('{"feed": "modelmill", "layout": 2}')
    with pytest.raises(Rejected, match="layout 2"):
        DirectoryFeed(tmp_path).preflight()


def test_only_what_dead_processes_left_is_swept(feed: DirectoryFeed, tmp_path: Path) -> None:
    tmp = tmp_path / "feed" / "tmp"
    dead, mine, foreign = (
        [tmp / f"publish-{name}.{what}" for what in ("manifest", "blob")]
        for name in (dead_name(), claim(), "0" * 12 + claim()[12:])
    )
    for path in (*dead, *mine, *foreign):
        path.write_bytes(b"x")

    def swept() -> set[str]:
        return {path.name for path in feed.sweep_stale()}

    assert swept() == {path.name for path in dead}
    old = time.time() - MAX_AGE - 60
    os.utime(foreign[0], (old, old))
    assert swept() == set()  # whoever it is has written the other one since
    os.utime(foreign[1], (old, old))
    assert swept() == {path.name for path in foreign}
    assert all(path.exists() for path in mine)
