"""The interface of a feed, and the records that cross it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from matrix.digest import FileEntry, LocalFile
from matrix.naming import Limits

__all__ = ["Feed", "FileEntry", "Limits", "LocalFile", "Progress", "Published"]

Progress = Callable[[int, int], None]
"""Called with (bytes done, total bytes), never from two threads at once. It may raise to stop
the transfer: the feed then stops, cleans up and lets the error propagate."""

MAX_DESCRIPTION = 500
_TREE = re.compile(r"(?:^|\s)tree=sha256:([0-9a-f]{64})(?=\s|$)")
_SAMPLES = re.compile(r"(?:^|\s)samples=(\w+)(?=\s|$)")
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Published:
    """A version in the feed."""

    package: str
    version: str
    description: str = ""
    published_at: datetime | None = None
    views: tuple[str, ...] = ()
    deleted: bool = False
    """The version number of a deleted version can never be used again."""

    @property
    def tree(self) -> str | None:
        """The digest of its content; None: it is not ours."""
        return parse_tree(self.description)

    @property
    def samples(self) -> str | None:
        """The kind of samples that it was verified on; None: the description does not say."""
        found = _SAMPLES.search(self.description)
        return found.group(1) if found else None


class Feed(Protocol):
    """What every feed can do. Implementations are safe to use from several threads."""

    @property
    def name(self) -> str:
        """The address that opens this feed from any folder. It is shown, recorded and compared:
        one spelling for one feed, and no secret in it."""

    @property
    def limits(self) -> Limits:
        """What the feed takes. A plan asks for it, so it needs no request."""

    @property
    def is_new(self) -> bool:
        """Whether `preflight` would make the feed; until then it holds nothing."""

    def check(self) -> None:
        """Check that this host could publish, without a change to the feed."""

    def preflight(self, plan: Sequence[tuple[str, str]] = ()) -> None:
        """Check credentials, the feed, names, versions and headroom for (package, version)s.

        Raises one error that names all problems found.
        """

    def packages(self) -> Iterator[str]:
        """Every package of the feed. Incomplete lists are errors."""

    def versions(self, package: str, prefix: str = "") -> Iterator[Published]:
        """Every version of exactly this package; empty if there is no such package.

        Incomplete lists are errors.
        """

    def find(self, package: str, version: str) -> Published | None:
        """One version by name, from the side of the feed that is always up to date."""

    def publish(
        self,
        package: str,
        version: str,
        files: Sequence[LocalFile],
        description: str,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Published:
        """Publish all files as one version, or none. Raises a typed `FeedError`."""

    def files(self, package: str, version: str) -> tuple[FileEntry, ...]:
        """The files that the feed holds for a version (the read-back). Raises `NotFound`."""

    def fetch(
        self,
        package: str,
        version: str,
        dest: Path,
        patterns: Sequence[str] = ("*",),
        *,
        progress: Progress | None = None,
    ) -> tuple[FileEntry, ...]:
        """Download matching files into a new folder `dest`, each checked against its digest.

        After an error, what is in the folder is not complete.
        """

    def view(self, name: str) -> str:
        """The name of a view as the feed spells it, found without regard to case."""

    def promote(self, package: str, version: str, view: str) -> None:
        """Make a version part of a view."""


def write_description(tree: str, text: str = "") -> str:
    """`tree=sha256:<digest> <text>` on one line, the text shortened where it is too long.

    A listing alone must tell what is published, so the digest travels in the only free text that
    every feed shows in its listings, and comes first: a feed that cuts long texts cannot cut it.
    """
    line = " ".join([f"tree=sha256:{tree}", *_UNPRINTABLE.sub(" ", text).split()])
    return line if len(line) <= MAX_DESCRIPTION else line[: MAX_DESCRIPTION - 1].rstrip() + "…"


def parse_tree(description: str) -> str | None:
    """The tree digest that a description carries; None: the version is not one of ours."""
    found = _TREE.search(description)
    return found.group(1) if found else None
