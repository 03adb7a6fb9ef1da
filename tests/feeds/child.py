"""A publishing process for the feed tests; its parent tells it when to start, and kills it.

feed_child once FEED SOURCE     publish one version on "go", print the outcome
feed_child loop FEED SOURCE     publish all versions of `VERSIONS`, again and again
"""

from __future__ import annotations

import random
import sys
import uuid
from pathlib import Path

from feed.directory import DirectoryFeed
from feed.errors import FeedError, Unavailable
from feed.interface import LocalFile
from feed.publisher import Publisher
from tests.fakes.feed import tree_of, write_files

PACKAGE = "modelmill-race"
VERSIONS = [f"0.0.0-test-{number}" for number in range(40)]


def contents(version: str, record: str) -> dict[str, bytes]:
    """What a version holds: a file of its own, one that all share, and a record of the run."""
    own = version.encode() * 20_000
    return {
        "model.onnx": own,
        "shared/vocab.txt": b"shared" * 50_000,
        f"parts/{version}.bin": own[::-1],
        "build.json": record.encode(),
    }


def made(folder: Path, version: str, record: str) -> tuple[LocalFile, ...]:
    """The files of a version."""
    return write_files(folder / version, contents(version, record))


def once(feed: DirectoryFeed, source: Path) -> str:
    """Publish what the parent put into the source folder."""
    paths = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()]
    files = write_files(source, {p.as_posix(): (source / p).read_bytes() for p in paths})
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        receipt = Publisher(feed).publish(PACKAGE, VERSIONS[0], files, tree=tree_of(files))
    except FeedError as error:
        return type(error).__name__
    return "there" if receipt.already_there else "published"


def loop(feed: DirectoryFeed, source: Path) -> None:
    """Publish until somebody ends this process."""
    run = uuid.uuid4().hex
    packages = {version: made(source, version, f"{run} {version}") for version in VERSIONS}
    publisher = Publisher(feed)
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        version = random.choice(VERSIONS)
        files = packages[version]
        try:
            publisher.publish(PACKAGE, version, files, tree=tree_of(files))
        except Unavailable:
            continue


if __name__ == "__main__":
    mode, root, folder = sys.argv[1:]
    target = DirectoryFeed(Path(root))
    if mode == "once":
        print(once(target, Path(folder)), flush=True)
    else:
        loop(target, Path(folder))
