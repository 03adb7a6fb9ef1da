"""Many processes at one directory feed, and what kill -9 leaves of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from feed.directory import DirectoryFeed
from feed.errors import NoSpace
from feed.publisher import Publisher
from tests.fakes.feed import tree_of, write_files
from tests.feeds.child import PACKAGE, VERSIONS, contents, made

ROOT = Path(__file__).parents[3]


@contextmanager
def children(mode: str, feed: Path, sources: list[Path]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ready and wait for their first line; none is left at the end."""
    command = [sys.executable, "-m", "tests.feeds.child", mode, str(feed)]
    started = [
        subprocess.Popen(
            [*command, str(source)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in sources
    ]
    try:
        for child in started:
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
        yield started
    finally:
        for child in started:
            child.kill()
            child.communicate()


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin
    child.stdin.write("go\n")
    child.stdin.flush()


def new_feed(folder: Path) -> DirectoryFeed:
    feed = DirectoryFeed(folder)
    feed.preflight()
    return feed


def blobs(root: Path) -> set[str]:
    return {path.name for path in (root / "blobs").rglob("*") if path.is_file()}


@pytest.mark.parametrize("different", [False, True])
def test_one_version_from_many_processes_at_once(tmp_path: Path, different: bool) -> None:
    feed = new_feed(tmp_path / "feed")
    sources = [tmp_path / f"source{number}" for number in range(6)]
    for number, source in enumerate(sources):
        model = bytes([number if different else 0]) * 3_000_000
        write_files(source, {"model.onnx": model, "build.json": str(number).encode()})
    with children("once", tmp_path / "feed", sources) as started:
        for child in started:
            go(child)
        outcomes = Counter(child.communicate()[0].strip() for child in started)
    loser = "Conflict" if different else "there"
    assert outcomes == {"published": 1, loser: len(sources) - 1}
    assert len(list(feed.versions(PACKAGE))) == 1
    feed.fetch(PACKAGE, VERSIONS[0], tmp_path / "out")
    assert blobs(tmp_path / "feed") == {file.sha256 for file in feed.files(PACKAGE, VERSIONS[0])}


def test_many_processes_make_one_feed(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def found() -> None:
        try:
            new_feed(tmp_path / "feed")
        except BaseException as error:  # noqa: BLE001 - reported by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=found) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list((tmp_path / "feed").glob(".*")) == []


@pytest.mark.parametrize("rounds", [4, pytest.param(13, marks=pytest.mark.slow)])
def test_kill_at_any_moment_leaves_whole_versions_only(tmp_path: Path, rounds: int) -> None:
    feed = new_feed(tmp_path / "feed")
    expected = {
        version: tree_of(made(tmp_path / "truth", version, "truth")) for version in VERSIONS
    }
    chance = random.Random(20260609)
    for round_ in range(rounds):
        sources = [tmp_path / f"source{number}" for number in range(4)]
        with children("loop", tmp_path / "feed", sources) as started:
            for child in started:
                go(child)
            for child in started:
                threading.Event().wait(chance.random() * 0.02)
                check(feed, expected)
                child.kill()
        check(feed, expected)
        if round_ % 4 == 3:
            check_bytes(feed, tmp_path / f"out{round_}")
    finish(feed, tmp_path / "last")
    assert {found.version: found.tree for found in feed.versions(PACKAGE)} == expected
    check_bytes(feed, tmp_path / "out")
    check_nothing_is_left(tmp_path / "feed", feed)


def check(feed: DirectoryFeed, expected: dict[str, str]) -> None:
    """What is visible is right, at any moment, while others publish and die."""
    for found in feed.versions(PACKAGE):
        assert found.tree == expected[found.version]
        assert len(feed.files(PACKAGE, found.version)) == 4


def check_bytes(feed: DirectoryFeed, out: Path) -> None:
    for found in feed.versions(PACKAGE):
        got = feed.fetch(PACKAGE, found.version, out / found.version)
        record = (out / found.version / "build.json").read_text()
        want = contents(found.version, record)
        assert {e.path: (out / found.version / e.path).read_bytes() for e in got} == want


def finish(feed: DirectoryFeed, source: Path) -> None:
    publisher = Publisher(feed)
    for version in VERSIONS:
        files = made(source, version, "last")
        publisher.publish(PACKAGE, version, files, tree=tree_of(files))


def check_nothing_is_left(root: Path, feed: DirectoryFeed) -> None:
    feed.sweep_stale()
    named = {
        file.sha256
        for found in feed.versions(PACKAGE)
        for file in feed.files(PACKAGE, found.version)
    }
    assert blobs(root) == named
    assert {path.name for path in (root / "tmp").iterdir()} <= {"commit.lock", "commit.new"}


READ_ONLY = """
import os, sys
import msgspec  # while the environment may be read
from pathlib import Path
from feed.directory import DirectoryFeed
from feed.errors import FeedError
from tests.fakes.feed import write_files
root = Path(sys.argv[1])
files = write_files(root / "source", {"x": b"x"})
DirectoryFeed(root / "warm").preflight()  # imports what it needs while it may
if os.geteuid() == 0:
    os.seteuid(65534)
feed = DirectoryFeed(root / "feed")
for call in (feed.preflight, lambda: feed.publish("pkg", "1.0.0", files, "")):
    try:
        call()
    except FeedError as error:
        print(type(error).__name__)
print(len(list(feed.versions("pkg"))))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="permissions work differently there")
def test_a_feed_that_this_user_may_only_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        new_feed(root / "feed")
        folders = [root, root / "feed", *(p for p in root.rglob("*") if p.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        root.chmod(0o755)
        done = run(READ_ONLY, name)
        for folder in folders:
            folder.chmod(0o755)
    assert done.stdout.split() == ["Unauthorized", "Unauthorized", "0"], done.stderr


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no mounts in here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_says_so_and_leaves_nothing(tmp_path: Path, small_disk: Path) -> None:
    feed = new_feed(small_disk / "feed")
    small = write_files(tmp_path / "small", {"x": b"1" * 500_000})
    large = write_files(tmp_path / "large", {"a": b"2" * 1_000_000, "b": b"3" * 1_000_000})
    Publisher(feed).publish(PACKAGE, VERSIONS[0], small, tree=tree_of(small))
    with pytest.raises(NoSpace, match=r"disk of the feed .* is full"):
        Publisher(feed).publish(PACKAGE, VERSIONS[1], large, tree=tree_of(large))
    check_nothing_is_left(small_disk / "feed", feed)
    assert [found.version for found in feed.versions(PACKAGE)] == [VERSIONS[0]]
    again = write_files(tmp_path / "again", {"x": b"4" * 500_000})
    Publisher(feed).publish(PACKAGE, VERSIONS[1], again, tree=tree_of(again))
