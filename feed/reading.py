"""The reading side of a directory feed: packages, versions, views, manifests.

Readers take no lock. A listing is built in full before the first item is handed out, and where
it would be empty the marker of the feed is looked at again: a disk that went away in the middle
must not look like a feed that has nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from feed.errors import NotFound, feed_errors
from feed.interface import Published
from feed.layout import Layout, Manifest, parse_manifest
from machine.files import long_path
from matrix.digest import FileEntry
from matrix.naming import Limits

_SUFFIX = ".json"


class DirectoryReader:
    """What is in the folder."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self._layout = Layout(long_path(root))
        self._name = f"dir:{root.resolve().as_posix()}"
        self._limits = limits

    @property
    def name(self) -> str:
        """`dir:` and the path."""
        return self._name

    @property
    def limits(self) -> Limits:
        """What can be published here can be published anywhere."""
        return self._limits

    @property
    def is_new(self) -> bool:
        """Whether nothing is there yet; the first publisher makes the folder."""
        return not self._layout.root.exists()

    def packages(self) -> Iterator[str]:
        """Every package that has a version."""
        self._layout.check()
        with feed_errors("cannot list packages", self._layout.root):
            names = _listing(self._layout.packages)
            named = [name for name in names if not self.limits.package_problem(name)]
            return iter([name for name in named if self.names(name)])

    def versions(self, package: str, prefix: str = "") -> Iterator[Published]:
        """Every version that begins with `prefix`, read in full before the first is handed out."""
        if self.limits.package_problem(package):
            return iter(())
        with feed_errors(f"cannot list {package}", self._layout.root):
            names = self.names(package, prefix)
            if not names:
                self._layout.check()
            views = self._views(package) if names else {}
            listed = [self._read(package, name) for name in names]
        return iter([found.published(views.get(found.version, ())) for found in listed])

    def find(self, package: str, version: str) -> Published | None:
        """One version by name."""
        found = self._manifest(package, version)
        return found.published(self._views(package).get(version, ())) if found else None

    def files(self, package: str, version: str) -> tuple[FileEntry, ...]:
        """The files of a version, as its manifest has them."""
        return self.live(package, version).files

    def live(self, package: str, version: str) -> Manifest:
        """The manifest of a version that can be read. Raises `NotFound`."""
        found = self._manifest(package, version)
        if found is None:
            raise NotFound(f"{package} {version} is not in {self._name}")
        return found

    def _manifest(self, package: str, version: str) -> Manifest | None:
        if self.limits.package_problem(package) or self.limits.version_problem(version):
            return None
        with feed_errors(f"cannot read {package} {version}", self._layout.root):
            try:
                return self._read(package, version)
            except FileNotFoundError:
                self._layout.check()
                return None

    def _read(self, package: str, version: str) -> Manifest:
        path = self._layout.manifest(package, version)
        return parse_manifest(path.read_bytes(), str(path), package, version)

    def names(self, package: str, prefix: str = "") -> list[str]:
        """The versions of a package by name."""
        return [
            name.removesuffix(_SUFFIX)
            for name in _listing(self._layout.packages / package)
            if name.startswith(prefix) and name.endswith(_SUFFIX)
        ]

    def _views(self, package: str) -> Mapping[str, tuple[str, ...]]:
        """The views of every version that is in one."""
        found: dict[str, tuple[str, ...]] = {}
        for view in _listing(self._layout.views):
            # What a file manager drops there (.DS_Store, desktop.ini) is no view.
            if (self._layout.views / view).is_dir():
                for version in _listing(self._layout.views / view / package):
                    found[version] = (*found.get(version, ()), view)
        return found


def _listing(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names only: listings are long
    except FileNotFoundError:
        return []
