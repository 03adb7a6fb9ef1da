from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from feed.errors import (
    Corrupt,
    FeedError,
    NoSpace,
    NotFound,
    Rejected,
    Unauthorized,
    Unavailable,
    UnsafePath,
)
from feed.interface import LocalFile
from feed.layout import Manifest
from feed.reader import pull
from feed.rules import STRICTEST
from matrix.digest import FileEntry
from tests.fakes.feed import EPOCH, write_files

CONTENTS = {"model.onnx": b"weights" * 1000, "sub/modelmill.json": b"{}", "build.json": b"[]"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[LocalFile, ...]:
    return write_files(tmp_path / "src", CONTENTS)


def blobs(root: Path) -> set[str]:
    return {path.name for path in (root / "blobs").rglob("*") if path.is_file()}


def unfinished(root: Path) -> list[str]:
    kept = {"commit.lock"}
    return [path.name for path in (root / "tmp").iterdir() if path.name not in kept]


def test_equal_content_is_one_blob(feed: DirectoryFeed, tmp_path: Path) -> None:
    files = write_files(tmp_path / "src", {"a": b"same", "b": b"same", "c": b"other"})
    feed.publish("pkg", "1.0.0", files, "")
    feed.publish("pkg", "1.0.1", files, "")
    assert blobs(tmp_path / "feed") == {file.entry.sha256 for file in files}


def test_a_file_that_vanished_is_refused_even_if_the_feed_has_its_content(
    feed: DirectoryFeed, files: tuple[LocalFile, ...]
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    files[1].source.unlink()
    with pytest.raises(Corrupt, match=r"modelmill\.json"):
        feed.publish("pkg", "1.0.1", files, "")
    files[1].source.write_bytes(b"{ }")
    with pytest.raises(Corrupt, match="expected 2 bytes, found 3"):
        feed.publish("pkg", "1.0.1", files, "")


def test_a_damaged_blob_of_another_size_is_replaced(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    digest = files[0].entry.sha256
    (tmp_path / "feed" / "blobs" / "sha256" / digest[:2] / digest).write_bytes(b"cut")
    with pytest.raises(Corrupt, match=r"model\.onnx"):
        pull(feed, "pkg", "1.0.0", tmp_path / "out")
    feed.publish("pkg", "1.0.1", files, "")
    feed.fetch("pkg", "1.0.0", tmp_path / "out")
    assert (tmp_path / "out" / "model.onnx").read_bytes() == CONTENTS["model.onnx"]


@pytest.mark.parametrize("damage", ["flip", "gone"])
def test_a_damaged_blob_never_gets_a_final_name(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path, damage: str
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    digest = files[0].entry.sha256
    blob = tmp_path / "feed" / "blobs" / "sha256" / digest[:2] / digest
    blob.write_bytes(b"x" + blob.read_bytes()[1:]) if damage == "flip" else blob.unlink()
    with pytest.raises(Corrupt, match=r"model\.onnx"):
        pull(feed, "pkg", "1.0.0", tmp_path / "out", ["model.onnx"])
    assert not (tmp_path / "out").exists()


def test_a_prefix_opens_no_other_manifest(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    for version in ("0.0.0-a-1", "0.0.0-a-2", "0.0.0-b-1"):
        feed.publish("pkg", version, files, "")
    (tmp_path / "feed" / "packages" / "pkg" / "0.0.0-b-1.json").write_bytes(b"rubbish")
    listed = [found.version for found in feed.versions("pkg", "0.0.0-a-")]
    assert listed == ["0.0.0-a-1", "0.0.0-a-2"]
    with pytest.raises(Corrupt, match=r"0\.0\.0-b-1\.json"):
        feed.versions("pkg")


def test_a_feed_that_went_away_is_not_an_empty_feed(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    shutil.rmtree(tmp_path / "feed")
    (tmp_path / "feed").mkdir()
    calls: list[Callable[[], object]] = [
        feed.packages,
        lambda: feed.versions("pkg"),
        lambda: feed.find("pkg", "1.0.0"),
        lambda: feed.files("pkg", "1.0.0"),
        lambda: feed.publish("pkg", "1.0.1", files, ""),
        feed.sweep_stale,
    ]
    for call in calls:
        with pytest.raises(NotFound, match="no directory feed at"):
            call()
    assert list((tmp_path / "feed").iterdir()) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, NoSpace),
        (errno.EDQUOT, NoSpace),
        (errno.EROFS, Unauthorized),
        (errno.EACCES, Unauthorized),
        (errno.EIO, Unavailable),
    ],
)
def test_disk_errors_are_typed_and_leave_nothing(
    feed: DirectoryFeed,
    files: tuple[LocalFile, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[Exception],
) -> None:
    def fail(*args: object) -> None:
        raise OSError(code, "broken")

    monkeypatch.setattr("feed.directory.write_checked", fail)
    with pytest.raises(kind, match="feed"):
        feed.publish("pkg", "1.0.0", files, "")
    assert unfinished(tmp_path / "feed") == []
    assert feed.find("pkg", "1.0.0") is None


def test_no_version_is_published_or_planned_above_the_limit(
    files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    feed = DirectoryFeed(tmp_path / "feed", limits=replace(STRICTEST, versions=2))
    feed.preflight()
    feed.publish("pkg", "1.0.0", files, "")
    feed.publish("pkg", "1.0.1", files, "")
    with pytest.raises(Rejected, match="2 versions"):
        feed.publish("pkg", "1.0.2", files, "")
    feed.preflight([("pkg", "1.0.0"), ("pkg", "1.0.1")])
    with pytest.raises(Rejected, match="1 new versions do not fit, 2 of 2"):
        feed.preflight([("pkg", "1.0.2")])


def test_foreign_files_are_no_versions(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    (tmp_path / "feed" / "packages" / "pkg" / ".DS_Store").touch()
    (tmp_path / "feed" / "packages" / "Thumbs.db").touch()
    (tmp_path / "feed" / "packages" / "hollow").mkdir()
    (tmp_path / "feed" / "views").mkdir()
    (tmp_path / "feed" / "views" / "desktop.ini").touch()
    assert list(feed.packages()) == ["pkg"]
    assert [found.version for found in feed.versions("pkg")] == ["1.0.0"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
@pytest.mark.parametrize("place", ["modelmill-feed.json", "packages/pkg/1.0.0.json", "blobs"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path, place: str
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    where = tmp_path / "feed" / place
    if where.is_dir():
        (where,) = where.rglob(files[0].entry.sha256)
    where.unlink()
    os.mkfifo(where)
    with pytest.raises(FeedError, match=r"is not the marker|is not a file"):
        _ = feed.versions("other"), feed.fetch("pkg", "1.0.0", tmp_path / "out")


def test_a_hostile_manifest_writes_nothing_outside(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    entry = FileEntry("../escaped", files[0].entry.size, files[0].entry.sha256)
    hostile = Manifest("pkg", "1.0.0", "", EPOCH, (entry,))
    (tmp_path / "feed" / "packages" / "pkg" / "1.0.0.json").write_bytes(hostile.to_json())
    with pytest.raises(UnsafePath, match="escaped"):
        feed.fetch("pkg", "1.0.0", tmp_path / "out")
    assert not (tmp_path / "escaped").exists()
