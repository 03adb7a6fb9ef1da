from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from feed.description import write_description
from feed.directory import DirectoryFeed
from feed.errors import (
    Corrupt,
    NoSpace,
    NotFound,
    Rejected,
    Unauthorized,
    Unavailable,
    UnsafePath,
    VersionExists,
)
from feed.interface import LocalFile
from feed.manifest import Manifest
from feed.rules import STRICTEST
from matrix.digest import FileEntry
from tests.fakes.feed import EPOCH, tree_of, write_files

CONTENTS = {"model.onnx": b"weights" * 1000, "sub/modelmill.json": b"{}", "build.json": b"[]"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[LocalFile, ...]:
    return write_files(tmp_path / "src", CONTENTS)


def blobs(root: Path) -> set[str]:
    return {path.name for path in (root / "blobs").rglob("*") if path.is_file()}


def unfinished(root: Path) -> list[str]:
    kept = {"commit.lock", "commit.new"}  # the lock, and the file for the next note
    return [path.name for path in (root / "tmp").iterdir() if path.name not in kept]


def test_publish_find_list_fetch(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    text = write_description(tree_of(files), "demo")
    done = feed.publish("pkg", "1.0.0-a", files, text, progress=lambda *p: seen.append(p))
    total = sum(map(len, CONTENTS.values()))
    assert seen[-1] == (total, total)
    assert done.tree == tree_of(files)
    assert feed.find("pkg", "1.0.0-a") == done
    assert list(feed.versions("pkg")) == [done]
    assert list(feed.packages()) == ["pkg"]
    assert set(feed.files("pkg", "1.0.0-a")) == {file.entry for file in files}
    feed.fetch("pkg", "1.0.0-a", tmp_path / "out", ["*.json"])
    got = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.*")}
    assert got == {"build.json", "sub/modelmill.json"}
    assert unfinished(tmp_path / "feed") == []


def test_equal_content_is_one_blob(feed: DirectoryFeed, tmp_path: Path) -> None:
    files = write_files(tmp_path / "src", {"a": b"same", "b": b"same", "c": b"other"})
    feed.publish("pkg", "1.0.0", files, "")
    feed.publish("pkg", "1.0.1", files, "")
    assert blobs(tmp_path / "feed") == {file.entry.sha256 for file in files}


def test_a_version_is_never_written_twice(feed: DirectoryFeed, tmp_path: Path) -> None:
    first = write_files(tmp_path / "a", {"x": b"1"})
    feed.publish("pkg", "1.0.0", first, "first")
    with pytest.raises(VersionExists):
        feed.publish("pkg", "1.0.0", write_files(tmp_path / "b", {"x": b"2"}), "second")
    found = feed.find("pkg", "1.0.0")
    assert found
    assert found.description == "first"
    assert blobs(tmp_path / "feed") == {first[0].entry.sha256}


@pytest.mark.parametrize("change", [b"weightz" * 1000, b"short", b"weights" * 1001])
def test_a_file_that_changed_since_it_was_hashed_is_refused(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path, change: bytes
) -> None:
    files[0].source.write_bytes(change)
    with pytest.raises(Corrupt, match=r"model\.onnx"):
        feed.publish("pkg", "1.0.0", files, "")
    assert feed.find("pkg", "1.0.0") is None
    assert blobs(tmp_path / "feed") == set()
    assert unfinished(tmp_path / "feed") == []


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
        feed.fetch("pkg", "1.0.0", tmp_path / "out")
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
        feed.fetch("pkg", "1.0.0", tmp_path / "out", ["model.onnx"])
    assert list((tmp_path / "out").iterdir()) == []


def test_progress_that_raises_stops_the_copy(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        feed.publish("pkg", "1.0.0", files, "", progress=stop)
    assert unfinished(tmp_path / "feed") == []
    assert feed.find("pkg", "1.0.0") is None


def test_a_deadline_that_is_over_publishes_nothing(
    feed: DirectoryFeed, files: tuple[LocalFile, ...]
) -> None:
    with pytest.raises(Unavailable, match="not done within 0 s"):
        feed.publish("pkg", "1.0.0", files, "", timeout=0)
    assert feed.find("pkg", "1.0.0") is None


@pytest.mark.parametrize(
    ("package", "version", "path", "word"),
    [
        ("Upper", "1.0.0", "x", "package"),
        ("a--b", "1.0.0", "x", "package"),
        ("pkg", "1.0", "x", "version"),
        ("pkg", "1.0.0+x", "x", "version"),
        ("pkg", "1.0.0-01", "x", "version"),
        ("pkg", "1.0.0", "../x", "'..'"),
        ("pkg", "1.0.0", ".artifactignore", "forbidden"),
    ],
)
def test_what_azure_would_refuse_is_refused_here(
    feed: DirectoryFeed, tmp_path: Path, package: str, version: str, path: str, word: str
) -> None:
    (file,) = write_files(tmp_path / "src", {"x": b"x"})
    bad = LocalFile(FileEntry(path, 1, file.entry.sha256), file.source)
    with pytest.raises(Rejected, match=word):
        feed.publish(package, version, [bad], "")
    assert list(feed.packages()) == []
    assert feed.find(package, version) is None
    assert list(feed.versions(package)) == []


def test_a_deleted_version_stays_taken(
    feed: DirectoryFeed, files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    feed.promote("pkg", "1.0.0", "Release")
    feed.delete("pkg", "1.0.0")
    found = feed.find("pkg", "1.0.0")
    assert found
    assert found.deleted
    assert list(feed.versions("pkg")) == [found]
    with pytest.raises(VersionExists):
        feed.publish("pkg", "1.0.0", files, "")
    for call in (
        lambda: feed.files("pkg", "1.0.0"),
        lambda: feed.fetch("pkg", "1.0.0", tmp_path / "out"),
        lambda: feed.promote("pkg", "1.0.0", "Release"),
        lambda: feed.delete("pkg", "1.0.0"),
    ):
        with pytest.raises(NotFound, match="deleted"):
            call()


def test_promotion_is_idempotent_and_shows_in_listings(
    feed: DirectoryFeed, files: tuple[LocalFile, ...]
) -> None:
    feed.publish("pkg", "1.0.0", files, "")
    for view in ("Release", "release", "Prerelease"):
        feed.promote("pkg", "1.0.0", view)
    (listed,) = feed.versions("pkg")
    assert listed.views == ("prerelease", "release")
    assert feed.find("pkg", "1.0.0") == listed
    with pytest.raises(NotFound):
        feed.promote("pkg", "1.0.1", "Release")
    with pytest.raises(Rejected, match="view"):
        feed.promote("pkg", "1.0.0", "../../x")


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


def test_the_limit_of_versions_counts_deleted_ones(
    files: tuple[LocalFile, ...], tmp_path: Path
) -> None:
    feed = DirectoryFeed(tmp_path / "feed", durable=False, limits=replace(STRICTEST, versions=2))
    feed.preflight()
    feed.publish("pkg", "1.0.0", files, "")
    feed.delete("pkg", "1.0.0")
    feed.publish("pkg", "1.0.1", files, "")
    with pytest.raises(Rejected, match="2 versions"):
        feed.publish("pkg", "1.0.2", files, "")
    feed.preflight([("pkg", "1.0.0"), ("pkg", "1.0.1")])
    with pytest.raises(Rejected, match="1 new versions do not fit, 2 of 2"):
        feed.preflight([("pkg", "1.0.2")])


def test_five_thousand_versions_are_the_limit(feed: DirectoryFeed, tmp_path: Path) -> None:
    folder = tmp_path / "feed" / "packages" / "pkg"
    folder.mkdir()
    for number in range(4999):
        (folder / f"0.0.{number}.json").touch()
    feed.preflight([("pkg", "1.0.0")])
    with pytest.raises(Rejected, match="2 new versions do not fit, 4999 of 5000"):
        feed.preflight([("pkg", "1.0.0"), ("pkg", "1.0.1")])


def test_preflight_tells_all_problems_at_once(feed: DirectoryFeed) -> None:
    plan = [("Upper", "1.0.0"), ("ok", "1"), ("ok", "1.0.0"), ("ok", "1.0.0")]
    with pytest.raises(Rejected) as caught:
        feed.preflight(plan)
    text = str(caught.value)
    assert "Upper" in text
    assert "version" in text
    assert "planned 2 times" in text


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


def test_threads_of_one_process_keep_apart(feed: DirectoryFeed, tmp_path: Path) -> None:
    start = threading.Barrier(6)

    def work(number: int) -> str:
        files = write_files(tmp_path / f"src{number}", {"x": b"same", "build.json": b"%d" % number})
        start.wait()
        feed.publish("pkg", f"1.0.{number}", files, "")
        try:
            feed.publish("pkg", "2.0.0", files, "")
        except VersionExists:
            return "lost"
        return "won"

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(work, range(6)))
    assert sorted(outcomes) == ["lost"] * 5 + ["won"]
    assert len(list(feed.versions("pkg"))) == 7
    assert len(blobs(tmp_path / "feed")) == 7
    assert unfinished(tmp_path / "feed") == []
