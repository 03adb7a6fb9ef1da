from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import feed.open
from feed.directory import DirectoryFeed
from feed.errors import FeedError
from feed.open import open_feed
from matrix.errors import UsageError
from tests.fakes.feed import MemoryFeed


@pytest.mark.parametrize("spec", ["out", "./out", "dir:out", "DIR:out", " dir:out "])
def test_paths_start_at_the_base(tmp_path: Path, spec: str) -> None:
    feed = open_feed(spec, base=tmp_path)
    assert isinstance(feed, DirectoryFeed)
    assert feed.name == f"dir:{(tmp_path / 'out').resolve().as_posix()}"
    assert list(tmp_path.iterdir()) == []


def test_an_absolute_path_stays(tmp_path: Path) -> None:
    assert open_feed(str(tmp_path / "x"), base=Path("elsewhere")).name.endswith("/x")
    assert open_feed(f"dir:{tmp_path / 'x'}", base=Path("elsewhere")).name.endswith("/x")


def test_a_drive_letter_is_no_scheme(tmp_path: Path) -> None:
    assert isinstance(open_feed(r"C:\feed", base=tmp_path), DirectoryFeed)


@pytest.mark.parametrize("spec", ["", " ", "dir:", "azure:"])
def test_no_place(tmp_path: Path, spec: str) -> None:
    with pytest.raises(UsageError, match="has no path"):
        open_feed(spec, base=tmp_path)


def test_an_unknown_scheme_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"known: azure:, dir:"):
        open_feed("s3:bucket", base=tmp_path)


def test_a_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("mem", "tests.fakes.feed:MemoryFeed", feed.open.GROUP),
        EntryPoint("bad", "tests.fakes.feed:Nothing", feed.open.GROUP),
    ]
    monkeypatch.setattr(feed.open, "entry_points", lambda group: points)
    opened = open_feed("mem:a:b", base=tmp_path)
    assert isinstance(opened, MemoryFeed)
    assert opened.name == "a:b"
    with pytest.raises(FeedError, match="bad: does not load"):
        open_feed("bad:x", base=tmp_path)
    with pytest.raises(UsageError, match="bad:, dir:, mem:"):
        open_feed("worse:x", base=tmp_path)
