"""The reading side of a directory feed: packages, versions, views, manifests.

Readers take no lock. A listing is built in full before the first item is handed out, and where
it would be empty the marker of the feed is looked at again: a disk that went away in the middle
must not look like a feed that has nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from feed.errors import NotFound
from feed.interface import Published
from feed.layout import Layout
from feed.manifest import Manifest, parse_manifest, parse_published
from feed.oserrors import feed_errors
from machine.files import read_whole
from matrix.limits import Limits

_SUFFIX = ".json"


class Shelves:
    """What is in the folder."""

    def __init__(self, layout: Layout, name: str, limits: Limits) -> None:
        self._layout = layout
        self._name = name
        self.limits = limits

    def packages(self) -> list[str]:
        """Every package that has a version."""
        self._layout.check()
        with feed_errors("cannot list packages", self._layout.root):
            return [
                package
                for package in _listing(self._layout.packages)
                if not self.limits.package_problem(package) and self.names(package)
            ]

    def versions(self, package: str, prefix: str = "") -> list[Published]:
        """Every version that begins with `prefix`; only their manifests are opened."""
        if self.limits.package_problem(package):
            return []
        with feed_errors(f"cannot list {package}", self._layout.root):
            names = self.names(package, prefix)
            if not names:
                self._layout.check()
                return []
            views = self._views(package)
            folder = os.fspath(self._layout.packages / package)
            return [
                parse_published(data, path, package, name, views.get(name, ()))
                for name, path, data in _read(folder, names)
            ]

    def find(self, package: str, version: str) -> Published | None:
        """One version by name."""
        data = self._data(package, version)
        if data is None:
            return None
        views = tuple(
            view
            for view in self._view_names()
            if (self._layout.views / view / package / version).exists()
        )
        path = self._layout.manifest(package, version)
        return parse_published(data, os.fspath(path), package, version, views)

    def live(self, package: str, version: str) -> Manifest:
        """The manifest of a version that can be read. Raises `NotFound`."""
        data = self._data(package, version)
        if data is None:
            raise NotFound(f"{package} {version} is not in {self._name}")
        path = self._layout.manifest(package, version)
        manifest = parse_manifest(data, os.fspath(path), package, version)
        if manifest.deleted_at:
            raise NotFound(f"{package} {version} was deleted from {self._name}")
        return manifest

    def _data(self, package: str, version: str) -> bytes | None:
        if self.limits.package_problem(package) or self.limits.version_problem(version):
            return None
        with feed_errors(f"cannot read {package} {version}", self._layout.root):
            try:
                return read_whole(self._layout.manifest(package, version))
            except FileNotFoundError:
                self._layout.check()
                return None

    def names(self, package: str, prefix: str = "") -> list[str]:
        """The versions of a package by name, deleted ones included."""
        return [
            name.removesuffix(_SUFFIX)
            for name in _listing(self._layout.packages / package)
            if name.startswith(prefix) and name.endswith(_SUFFIX)
        ]

    def _view_names(self) -> list[str]:
        # What a file manager drops there (.DS_Store, desktop.ini) is no view.
        views = self._layout.views
        return [view for view in _listing(views) if (views / view).is_dir()]

    def _views(self, package: str) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for view in self._view_names():
            for version in _listing(self._layout.views / view / package):
                found[version] = (*found.get(version, ()), view)
        return found


def _listing(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names only: listings are long
    except FileNotFoundError:
        return []


def _read(folder: str, names: list[str]) -> Iterator[tuple[str, str, bytes]]:
    for name in names:
        path = f"{folder}{os.sep}{name}{_SUFFIX}"
        yield name, path, read_whole(path)
