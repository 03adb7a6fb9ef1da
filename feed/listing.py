"""What `modelmill feed ls` and `feed show` print: packages, versions, files and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from feed.errors import NotFound
from feed.interface import Feed, Published
from matrix.digest import FileEntry
from matrix.globs import matches
from matrix.nearest import near

_WILD = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class PackageSummary:
    """A package in one line."""

    package: str
    versions: int
    """Live ones."""
    deleted: int
    newest: datetime | None


@dataclass(frozen=True, slots=True)
class VersionDetails:
    """A version with its files."""

    published: Published
    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


def list_packages(feed: Feed) -> Iterator[PackageSummary]:
    """Every package with a summary of its versions."""
    for package in feed.packages():
        versions = list(feed.versions(package))
        live = [version for version in versions if not version.deleted]
        times = [version.published_at for version in live if version.published_at]
        gone = len(versions) - len(live)
        yield PackageSummary(package, len(live), gone, max(times, default=None))


def list_versions(
    feed: Feed, package: str = "*", version: str = "*", *, deleted: bool = False
) -> Iterator[Published]:
    """Versions that match, of packages that match. A package that is not there is an error."""
    if _WILD.search(package):
        names = [name for name in feed.packages() if matches(name, [package])]
    else:
        names = [package]
    prefix = _WILD.split(version, maxsplit=1)[0]
    for name in names:
        listed = list(feed.versions(name, prefix))
        if not listed and name == package and next(feed.versions(name), None) is None:
            meant = near(package, feed.packages()) or "see: modelmill feed ls"
            raise NotFound(f"no package {package} in {feed.name}", hint=meant)
        for found in listed:
            if matches(found.version, [version]) and (deleted or not found.deleted):
                yield found


def missing(feed: Feed, package: str, version: str) -> NotFound:
    """That a version is not there, with what may have been meant."""
    known = [one.version for one in feed.versions(package) if not one.deleted]
    meant = near(version, known) if known else near(package, feed.packages())
    see = f"see: modelmill feed ls {package}" if known else "see: modelmill feed ls"
    return NotFound(f"{package} {version} is not in {feed.name}", hint=meant or see)


def show(feed: Feed, package: str, version: str) -> VersionDetails:
    """A version with its files. Raises `NotFound`."""
    published = feed.find(package, version)
    if published is None:
        raise missing(feed, package, version)
    # The side of a feed that knows a version at once need not know its date and views.
    listed = (one for one in feed.versions(package, version) if one.version == version)
    files = () if published.deleted else feed.files(package, version)
    return VersionDetails(next(listed, published), files)
