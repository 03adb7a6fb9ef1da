"""The directory feed: immutable versions in a plain folder, safe for many processes at once.

A publish copies every new file into `tmp` while hashing it, flushes it, and only then enters
the short critical section of `feed.commit`. Readers need no lock: whatever has its final name
is whole, and the manifest comes last. A listing is built in full before the first item is handed
out, and where it would be empty the marker of the feed is looked at again: a disk that went away in
the middle must not look like a feed that has nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from feed.checked import Meter, read_blocks, receive, write_checked
from feed.commit import Committer
from feed.errors import Corrupt, NotFound, Rejected, VersionExists, feed_errors
from feed.interface import LocalFile, Progress, Published
from feed.layout import STAGE, Layout, Manifest, corrupt, parse_manifest
from feed.rules import STRICTEST, check_publish, headroom_problems, matching, view_problem
from machine.files import flush_all, flush_file, flush_folder, long_path, read_file, unlink
from machine.processes import claim
from matrix.digest import FileEntry
from matrix.errors import in_lines
from matrix.naming import Limits

Stage = Callable[[str], Path]
"""Gives the path where a file is written until it gets its final name."""
_SUFFIX = ".json"


class DirectoryFeed:
    """A feed in a folder."""

    def __init__(self, root: Path, *, limits: Limits = STRICTEST) -> None:
        self._layout = Layout(long_path(root))
        self._committer = Committer(self._layout, limits)
        self.name = f"dir:{root.resolve().as_posix()}"
        self.limits = limits

    @property
    def is_new(self) -> bool:
        """Whether the folder is missing or empty; the first publisher makes a feed of it."""
        return self._layout.is_new()

    def preflight(self, plan: Sequence[tuple[str, str]] = ()) -> None:
        """Make the feed if it is new, and check that everything in `plan` could be published."""
        self._layout.prepare()
        self.sweep_stale()
        if problems := headroom_problems(self.limits, plan, self.names):
            raise Rejected(in_lines(f"{self.name} would refuse the plan:", problems))

    def check(self) -> None:
        """Whether this user could publish here; writes nothing."""
        self._layout.check_access()

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
        """Copy, check and commit; the version becomes visible with the last step.

        The feed must exist: only `preflight` makes one. A publish to a disk that is not mounted
        fails instead of filling the disk below it.
        """
        meter = Meter(sum(file.entry.size for file in files), progress, timeout)
        check_publish(self.limits, package, version, [file.entry for file in files])
        entries = tuple(sorted(file.entry for file in files))
        manifest = Manifest(package, version, description, datetime.now(UTC), entries)
        with feed_errors(f"cannot publish {package} {version}", self._layout.root):
            self._layout.check()
            if self._layout.manifest(package, version).exists():
                raise VersionExists(f"{package} {version} is in {self.name} already")
            with self._staging() as stage:
                self._publish(manifest, files, stage, meter)
        return manifest.published()

    @contextmanager
    def _staging(self) -> Iterator[Stage]:
        """Paths for unfinished files; those that were not renamed are removed."""
        name, staged = f"{STAGE}{claim()}", list[Path]()

        def stage(what: str) -> Path:
            staged.append(self._layout.tmp / f"{name}.{what}")
            return staged[-1]

        try:
            yield stage
        finally:
            _discard(staged)

    def _publish(
        self, manifest: Manifest, files: Sequence[LocalFile], stage: Stage, meter: Meter
    ) -> None:
        path = stage("manifest")
        path.write_bytes(manifest.to_json())
        blobs: dict[str, Path] = {}
        flush_all(flush_file, [path, *self._copy(files, stage, blobs, meter)])
        with self._committer.exclusive(meter.left()):
            meter.check()
            self._committer.commit(manifest, path, blobs)

    def _copy(
        self, files: Sequence[LocalFile], stage: Stage, blobs: dict[str, Path], meter: Meter
    ) -> list[Path]:
        written = []
        for file in files:
            entry = file.entry
            if entry.sha256 in blobs or self._committer.has(entry):
                _check_source(file)
                meter.moved(entry.size)
                continue
            temp = stage(entry.sha256)
            write_checked(read_blocks(file.source, entry.path), entry, temp, meter.moved)
            blobs[entry.sha256] = temp
            written.append(temp)
        return written

    def fetch(
        self,
        package: str,
        version: str,
        dest: Path,
        patterns: Sequence[str] = ("*",),
        *,
        progress: Progress | None = None,
    ) -> tuple[FileEntry, ...]:
        """Copy matching files out of the feed, each checked on the way."""
        chosen = matching(self.files(package, version), patterns)

        def read(entry: FileEntry) -> Iterator[bytes]:
            what = f"{package} {version} {entry.path}"
            return read_blocks(self._layout.blob(entry.sha256), what)

        receive(dest, chosen, read, progress)
        return chosen

    def view(self, name: str) -> str:
        """In lower case; a view exists as soon as something is in it."""
        problem = view_problem(name)
        if problem:
            raise Rejected(problem)
        return name.lower()

    def promote(self, package: str, version: str, view: str) -> None:
        """Add a version to a view. As on every feed, this cannot be undone."""
        name = self.view(view)
        self.live(package, version)
        marker = self._layout.views / name / package / version
        with feed_errors(f"cannot promote {package} {version}", self._layout.root):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
            flush_all(flush_folder, [marker.parent])

    def sweep_stale(self) -> list[Path]:
        """Remove what publishers that are gone left unfinished."""
        self._layout.check()
        with feed_errors("cannot clean up", self._layout.root), self._committer.exclusive():
            return self._layout.sweep_stale()

    def packages(self) -> Iterator[str]:
        """Every package that has a version."""
        self._layout.check()
        with feed_errors("cannot list packages", self._layout.root):
            names = _listing(self._layout.packages)
            named = [name for name in names if not self.limits.package.problem(name)]
            return iter([name for name in named if self.names(name)])

    def versions(self, package: str, prefix: str = "") -> Iterator[Published]:
        """Every version that begins with `prefix`, read in full before the first is handed out."""
        if self.limits.package.problem(package):
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
            raise NotFound(f"{package} {version} is not in {self.name}")
        return found

    def _manifest(self, package: str, version: str) -> Manifest | None:
        if self.limits.package.problem(package) or self.limits.version.problem(version):
            return None
        with feed_errors(f"cannot read {package} {version}", self._layout.root):
            try:
                return self._read(package, version)
            except FileNotFoundError:
                self._layout.check()
                return None

    def _read(self, package: str, version: str) -> Manifest:
        path = self._layout.manifest(package, version)
        try:
            data = read_file(path)
        except ValueError as error:
            raise corrupt(str(path), str(error)) from error
        return parse_manifest(data, str(path), package, version)

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
            # What a file manager drops there (.DS_Store, desktop.ini) is not a view.
            if (self._layout.views / view).is_dir():
                for version in _listing(self._layout.views / view / package):
                    found[version] = (*found.get(version, ()), view)
        return found


def _discard(staged: Sequence[Path]) -> None:
    for path in staged:
        with suppress(OSError):  # what cannot be removed now is swept later
            unlink(path)


def _check_source(file: LocalFile) -> None:
    """The feed has the content already; refuse a source that cannot hold it."""
    try:
        size = file.source.stat().st_size
    except OSError as error:
        raise Corrupt(f"{file.entry.path}: cannot read {file.source}: {error.strerror}") from error
    if size != file.entry.size:
        raise Corrupt(f"{file.entry.path}: expected {file.entry.size} bytes, found {size}")


def _listing(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names only: listings are long
    except FileNotFoundError:
        return []
