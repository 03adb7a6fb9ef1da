"""The feeds that the conformance suite runs against.

Every kind has a factory here. Another feed joins without a line of code: `pytest --feed SPEC`
with whatever `modelmill --feed` takes. Its packages get names that no run has used before,
because versions are never free again.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from feed.directory import DirectoryFeed
from feed.interface import Feed
from feed.open import open_feed
from tests.fakes.azure.harness import AzureHarness
from tests.fakes.feed import MemoryFeed


@dataclass(frozen=True)
class Subject:
    """A feed under test."""

    feed: Feed
    reopened: Callable[[], Feed]
    """The same feed as another process sees it."""
    delete: Callable[[str, str], None] | None = None
    """Deletes a version; None: a test cannot."""
    fill: Callable[[str, int], None] | None = None
    """Gives a package so many versions at once; None: a test cannot."""
    view: str = "Release"

    def package(self, name: str = "pkg") -> str:
        """The name of a package that the feed has never had."""
        return f"{name}-{uuid.uuid4().hex[:12]}"


Factory = Callable[[Path], Iterator[Subject]]


def memory(_folder: Path) -> Iterator[Subject]:
    """The fake of the unit tests: it must behave as the real ones do."""
    feed = MemoryFeed()
    yield Subject(feed, lambda: feed, feed.delete)


def directory(folder: Path) -> Iterator[Subject]:
    """A folder."""

    def opened() -> DirectoryFeed:
        return DirectoryFeed(folder / "feed")

    def fill(package: str, count: int) -> None:
        (folder / "feed" / "packages" / package).mkdir()
        for number in range(count):
            (folder / "feed" / "packages" / package / f"0.0.{number}.json").touch()

    feed = opened()
    feed.preflight()
    yield Subject(feed, opened, None, fill)
    # The lock; nothing else stays, not even after a failure.
    root = folder / "feed"
    assert {path.name for path in (root / "tmp").iterdir()} <= {"commit.lock"}
    blobs = {path.name for path in (root / "blobs").rglob("*") if path.is_file()}
    manifests = [path.read_text("utf-8") for path in (root / "packages").rglob("*.json")]
    assert blobs <= {digest for text in manifests for digest in re.findall("[0-9a-f]{64}", text)}


def azure(folder: Path) -> Iterator[Subject]:
    """Azure Artifacts, played by the stand-in of service and tool."""
    with AzureHarness(folder) as harness:
        organization, held = harness.standin.organization, harness.standin.feed

        def fill(package: str, count: int) -> None:
            organization.seed(held, package, {f"0.0.{number}": "" for number in range(count)})

        def delete(package: str, version: str) -> None:
            organization.delete(held, package, version)

        yield Subject(harness.feed(), harness.feed, delete, fill)
        assert harness.leftovers() == []


def named(spec: str) -> Factory:
    """A feed by its address."""

    def factory(_folder: Path) -> Iterator[Subject]:
        def opened() -> Feed:
            return open_feed(spec, base=Path.cwd())

        feed = opened()
        feed.preflight()
        yield Subject(feed, opened)

    return factory


KINDS: dict[str, Factory] = {"memory": memory, "directory": directory}
if sys.platform != "win32":  # the stand-in of ArtifactTool is a script
    KINDS["azure"] = azure
DELETING = tuple(kind for kind in KINDS if kind != "directory")
"""Kinds from which a test can delete."""
FILLING = tuple(kind for kind in KINDS if kind != "memory")
"""Kinds that a test can fill."""


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Subject]:
    """A subject by its kind, or by the address of a feed."""
    yield from KINDS.get(kind, named(kind))(folder)
