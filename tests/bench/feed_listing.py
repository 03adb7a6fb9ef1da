"""How long listings, publishes and pulls of a directory feed take, and how they grow.

    python -m tests.bench.feed_listing [VERSIONS ...]

Prints times and ratios of one run; asserts nothing. Manifests are written straight to the disk:
what is measured is reading them.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feed.directory import DirectoryFeed
from feed.interface import write_description
from feed.layout import Layout, Manifest
from feed.publisher import Publisher
from matrix.digest import FileEntry, tree_digest
from tests.fakes.feed import EPOCH, tree_of, write_files

TARGETS = 8
FILES = 6


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of a block to `times`."""
    start = time.perf_counter()
    yield
    times[name] = times.get(name, 0.0) + time.perf_counter() - start


def fill(root: Path, versions: int) -> None:
    """Write manifests: 8 versions per package, 6 files each."""
    layout = Layout(root)
    layout.create()
    for number in range(versions // TARGETS):
        package = f"modelmill-org-model-{number:06}"
        (layout.packages / package).mkdir(parents=True)
        for target in range(TARGETS):
            digest = hashlib.sha256(f"{number} {target}".encode()).hexdigest()
            files = tuple(FileEntry(f"part/model-{i}.onnx", i, digest) for i in range(FILES))
            version = f"0.0.0-20260609-ep{target}-npu-org-model-{number:06}"
            text = write_description(tree_digest(files), "org/model")
            path = layout.manifest(package, version)
            path.write_bytes(Manifest(package, version, text, EPOCH, files).to_json())


def listing(folder: Path, versions: int) -> dict[str, float]:
    """List everything with tree digests; then again with a prefix that fits nothing."""
    fill(folder, versions)
    feed = DirectoryFeed(folder)
    times: dict[str, float] = {}
    with timed(times, "all"):
        trees = [found.tree for package in feed.packages() for found in feed.versions(package)]
    assert len(trees) == versions // TARGETS * TARGETS
    assert None not in trees
    with timed(times, "prefix"):
        for package in feed.packages():
            list(feed.versions(package, "0.0.0-other-"))
    return times


def publishing(folder: Path, count: int = 100) -> dict[str, float]:
    """Small versions; then one large file against a plain hash of it."""
    times: dict[str, float] = {}
    feed = DirectoryFeed(folder / "feed")
    feed.preflight()
    publisher = Publisher(feed)
    for number in range(count):
        contents = {f"{i}.onnx": f"{number} {i}".encode() for i in range(4)}
        files = write_files(folder / "src", contents)
        with timed(times, "publish small files"):
            publisher.publish("pkg", f"0.0.{number}", files, tree=tree_of(files))
    large = write_files(folder / "large", {"model.onnx": b"0123456789abcdef" * (16 << 20)})
    with timed(times, "hash 256 MiB"):
        hashlib.sha256(large[0].source.read_bytes()).hexdigest()
    with timed(times, "publish 256 MiB"):
        feed.publish("large", "1.0.0", large, "")
    with timed(times, "fetch 256 MiB"):
        feed.fetch("large", "1.0.0", folder / "out")
    return times


def main(counts: list[int]) -> None:
    """Print what one run measured."""
    before: tuple[int, float] | None = None
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            times = listing(Path(name) / "feed", count)
        each = times["all"] / count
        grown = f", {each / before[1]:.2f} x per version of {before[0]}" if before else ""
        print(
            f"{count} versions: listed in {times['all']:.2f} s ({each * 1e6:.0f} us each{grown}); "
            f"prefix without a match {times['prefix']:.2f} s "
            f"({times['prefix'] / times['all']:.2f} of it)"
        )
        before = before or (count, each)
    with tempfile.TemporaryDirectory() as name:
        times = publishing(Path(name))
    print(f"publish of 4 small files: {times['publish small files'] * 10:.1f} ms")
    for kind in ("publish", "fetch"):
        ratio = times[f"{kind} 256 MiB"] / times["hash 256 MiB"]
        print(f"{kind} of 256 MiB: {ratio:.2f} x reading and hashing it")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [1_000, 10_000, 100_000])
