"""The critical section when something goes wrong in the middle of it."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock

from feed.commit import Committer
from feed.directory import DirectoryFeed
from feed.errors import Corrupt, NoSpace, Rejected, Unavailable, VersionExists
from feed.interface import write_description
from feed.layout import Layout, Manifest
from feed.publisher import Publisher
from feed.rules import STRICTEST
from machine.files import create_exclusive
from machine.processes import claim
from tests.fakes.feed import tree_of, write_files
from tests.machine.dead import dead_name


class Killed(BaseException):
    """Stands for kill -9: nothing of ours may handle it."""


def blobs(root: Path) -> set[str]:
    return {path.name for path in (root / "blobs").rglob("*") if path.is_file()}


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the process "die" at a step of the commit, with its note written by a dead process."""

    def die(step: str) -> None:
        monkeypatch.setattr("feed.commit.claim", dead_name)
        monkeypatch.setattr("feed.directory._discard", lambda paths: None)

        def killed(*args: object, **kwargs: object) -> None:
            raise Killed

        monkeypatch.setattr(step, killed)

    return die


@pytest.mark.parametrize("step", ["feed.commit.create_exclusive", "feed.commit.Committer._place"])
def test_blobs_of_a_publish_that_died_are_taken_back(
    feed: DirectoryFeed,
    tmp_path: Path,
    die_at: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    kept = write_files(tmp_path / "kept", {"x": b"kept"})
    feed.publish("pkg", "1.0.0", kept, "")
    files = write_files(tmp_path / "src", {"x": b"lost", "y": b"kept"})
    die_at(step)
    with pytest.raises(Killed):
        feed.publish("pkg", "1.0.1", files, "")
    monkeypatch.undo()
    assert feed.find("pkg", "1.0.1") is None
    assert (tmp_path / "feed" / "tmp" / "commit.json").exists()
    feed.publish("pkg", "1.0.2", kept, "")
    assert blobs(tmp_path / "feed") == {kept[0].entry.sha256}
    assert not (tmp_path / "feed" / "tmp" / "commit.json").exists()


@pytest.mark.parametrize("step", ["feed.commit.create_exclusive", "feed.commit.flush_all"])
def test_a_disk_that_fails_in_the_middle_leaves_nothing_in_the_way(
    feed: DirectoryFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    files = write_files(tmp_path / "src", {"x": b"1"})

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(step, full)
    with pytest.raises(NoSpace):
        feed.publish("pkg", "1.0.0", files, "")
    monkeypatch.undo()
    assert feed.find("pkg", "1.0.0") is None
    assert blobs(tmp_path / "feed") == set()
    assert not (tmp_path / "feed" / "packages" / "pkg").exists()
    feed.publish("pkg", "1.0.0", files, "")
    assert blobs(tmp_path / "feed") == {files[0].entry.sha256}


def test_blobs_of_a_version_that_was_committed_stay(
    feed: DirectoryFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_files(tmp_path / "src", {"x": b"1"})
    with monkeypatch.context() as patch:
        patch.setattr("feed.commit.claim", dead_name)

        def link_and_die(temp: Path, final: Path) -> None:
            create_exclusive(temp, final)
            raise Killed

        patch.setattr("feed.commit.create_exclusive", link_and_die)
        with pytest.raises(Killed):
            feed.publish("pkg", "1.0.0", files, write_description(tree_of(files)))
    feed.sweep_stale()
    assert blobs(tmp_path / "feed") == {files[0].entry.sha256}
    feed.fetch("pkg", "1.0.0", tmp_path / "out")


def test_a_blob_that_is_taken_back_under_our_feet_is_copied_again(
    feed: DirectoryFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_files(tmp_path / "src", {"x": b"shared", "y": b"own"})
    digest = files[0].entry.sha256
    blob = tmp_path / "feed" / "blobs" / "sha256" / digest[:2] / digest
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"shared")
    note = {"owner": dead_name(), "package": "pkg", "version": "0.0.9", "blobs": [digest]}
    (tmp_path / "feed" / "tmp" / "commit.json").write_text(json.dumps(note))
    seen: list[float] = []

    def sleep(_event: threading.Event, seconds: float) -> bool:
        seen.append(seconds)
        return False

    publisher = Publisher(feed, sleep=sleep)
    receipt = publisher.publish("pkg", "1.0.0", files, tree=tree_of(files))
    assert blob.read_bytes() == b"shared"
    assert (receipt.attempts, len(seen)) == (2, 1)


def test_the_note_of_a_living_process_means_that_locks_do_not_work(
    feed: DirectoryFeed, tmp_path: Path
) -> None:
    note = {"owner": claim(), "package": "pkg", "version": "1.0.0", "blobs": []}
    (tmp_path / "feed" / "tmp" / "commit.json").write_text(json.dumps(note))
    with pytest.raises(Unavailable, match="locks"):
        feed.publish("pkg", "1.0.1", write_files(tmp_path / "src", {"x": b"1"}), "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"blobs": ["../../victim"]},
        {"blobs": ["../../empty/victim"]},
        {"blobs": {"../../victim": 1}},
        {"package": "../../empty"},
        {"package": "pkg", "version": "../../../empty/1"},
        {"owner": 3},
    ],
)
def test_a_note_of_somebody_else_removes_nothing_outside_of_the_feed(
    feed: DirectoryFeed, tmp_path: Path, wrong: dict[str, object]
) -> None:
    (tmp_path / "victim").write_text("mine", "utf-8")
    (tmp_path / "empty").mkdir()
    note = {"owner": dead_name(), "package": "pkg", "version": "1.0.0", "blobs": [], **wrong}
    place = tmp_path / "feed" / "tmp" / "commit.json"
    place.write_text(json.dumps(note), "utf-8")
    with pytest.raises(Corrupt, match=r"commit\.json cannot be read: "):
        feed.publish("pkg", "1.0.1", write_files(tmp_path / "src", {"x": b"1"}), "")
    assert (tmp_path / "victim").exists()
    assert (tmp_path / "empty").exists()


def test_a_file_system_without_locks_is_refused(
    feed: DirectoryFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(*_all: object, **_more: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("feed.commit.take", take)
    with pytest.raises(Rejected, match="has no file locks"):
        feed.publish("pkg", "1.0.1", write_files(tmp_path / "src", {"x": b"1"}), "")
    assert not list((tmp_path / "feed").rglob("1.0.1.json"))


def test_a_note_that_cannot_be_read_is_an_error(feed: DirectoryFeed, tmp_path: Path) -> None:
    (tmp_path / "feed" / "tmp" / "commit.json").write_text("{")
    with pytest.raises(Corrupt, match=r"commit\.json"):
        feed.publish("pkg", "1.0.1", write_files(tmp_path / "src", {"x": b"1"}), "")


def test_a_lock_that_is_held_is_waited_for_no_longer_than_the_deadline(
    feed: DirectoryFeed, tmp_path: Path
) -> None:
    committer = Committer(Layout(tmp_path / "feed"), STRICTEST)
    with (
        FileLock(tmp_path / "feed" / "tmp" / "commit.lock"),
        pytest.raises(Unavailable, match="locked"),
        committer.exclusive(0.01),
    ):
        pytest.fail("the lock was not held")


def test_without_the_lock_the_manifest_is_still_exclusive(
    feed: DirectoryFeed, tmp_path: Path
) -> None:
    committer = Committer(Layout(tmp_path / "feed"), STRICTEST)
    files = write_files(tmp_path / "src", {"x": b"1"})
    feed.publish("pkg", "1.0.0", files, "first")
    temp = tmp_path / "feed" / "tmp" / "manifest"
    temp.write_bytes(b"second")
    entries = tuple(file.entry for file in files)
    with pytest.raises(VersionExists):
        committer.commit(Manifest("pkg", "1.0.0", "", datetime.now(UTC), entries), temp, {})
    with pytest.raises(FileExistsError):
        create_exclusive(temp, tmp_path / "feed" / "packages" / "pkg" / "1.0.0.json")
    found = feed.find("pkg", "1.0.0")
    assert found
    assert found.description == "first"


@pytest.mark.skipif(sys.platform == "win32", reason="hard links are not used there")
def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: object, target: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    create_exclusive(tmp_path / "a", tmp_path / "final")
    with pytest.raises(FileExistsError):
        create_exclusive(tmp_path / "b", tmp_path / "final")
    assert (tmp_path / "final").read_text() == "a"


@pytest.mark.skipif(sys.platform == "win32", reason="hard links are not used there")
def test_a_link_whose_reply_was_lost_is_our_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    create_exclusive(tmp_path / "a", tmp_path / "final")
    create_exclusive(tmp_path / "a", tmp_path / "final")
    assert (tmp_path / "final").read_text() == "a"
