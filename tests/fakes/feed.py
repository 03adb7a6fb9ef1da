"""A feed in memory, and a wrapper that makes any feed fail in the ways real ones do."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from feed.checked import Meter, hash_file, receive
from feed.errors import (
    Corrupt,
    NoSpace,
    NotFound,
    OutcomeUnknown,
    Rejected,
    Unauthorized,
    Unavailable,
    VersionExists,
)
from feed.interface import Feed, LocalFile, Progress, Published
from feed.rules import STRICTEST, check_publish, headroom_problems, view_problem
from matrix.digest import FileEntry, tree_digest
from matrix.errors import in_lines
from matrix.naming import Limits

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> tuple[LocalFile, ...]:
    """Local files with these contents, ready to publish."""
    for path, data in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return tuple(LocalFile(hash_file(folder / path, path), folder / path) for path in contents)


def tree_of(files: Sequence[LocalFile]) -> str:
    """The tree digest of what is to be published."""
    return tree_digest(file.entry for file in files)


@dataclass(slots=True)
class _Version:
    published: Published
    contents: dict[str, bytes]
    entries: tuple[FileEntry, ...]


class MemoryFeed:
    """The whole contract of a feed without a disk."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._lock = threading.RLock()
        self._packages: dict[str, dict[str, _Version]] = {}
        self.sends = 0
        """How many publishes came as far as sending bytes."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def limits(self) -> Limits:
        return STRICTEST

    @property
    def is_new(self) -> bool:
        return False

    def check(self) -> None:
        """Memory is always there."""

    def preflight(self, plan: Sequence[tuple[str, str]] = ()) -> None:
        with self._lock:
            held = {package: tuple(versions) for package, versions in self._packages.items()}
        problems = headroom_problems(self.limits, plan, lambda name: held.get(name, ()))
        if problems:
            raise Rejected(in_lines(f"{self._name} would refuse the plan:", problems))

    def packages(self) -> Iterator[str]:
        with self._lock:
            return iter(sorted(self._packages))

    def versions(self, package: str, prefix: str = "") -> Iterator[Published]:
        with self._lock:
            held = self._packages.get(package, {})
            return iter([held[name].published for name in sorted(held) if name.startswith(prefix)])

    def find(self, package: str, version: str) -> Published | None:
        with self._lock:
            found = self._packages.get(package, {}).get(version)
            return found.published if found else None

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
        check_publish(self.limits, package, version, [file.entry for file in files])
        if self.find(package, version):
            raise VersionExists(f"{package} {version}")
        self.sends += 1
        meter = Meter(sum(file.entry.size for file in files), progress, timeout)
        for file in files:
            if hash_file(file.source, file.entry.path) != file.entry:
                raise Corrupt(file.entry.path)
            meter.moved(file.entry.size)
        with self._lock:
            held = self._packages.setdefault(package, {})
            if version in held:
                raise VersionExists(f"{package} {version}")
            when = EPOCH + timedelta(seconds=sum(map(len, self._packages.values())))
            published = Published(package, version, description, when)
            contents = {file.entry.path: file.source.read_bytes() for file in files}
            entries = tuple(sorted(file.entry for file in files))
            held[version] = _Version(published, contents, entries)
            return published

    def files(self, package: str, version: str) -> tuple[FileEntry, ...]:
        return self._live(package, version).entries

    def fetch(
        self,
        package: str,
        version: str,
        dest: Path,
        patterns: Sequence[str] = ("*",),
        *,
        progress: Progress | None = None,
    ) -> tuple[FileEntry, ...]:
        held = self._live(package, version)
        chosen = tuple(
            entry for entry in held.entries if any(fnmatchcase(entry.path, p) for p in patterns)
        )
        receive(dest, chosen, lambda entry: [held.contents[entry.path]], progress)
        return chosen

    def view(self, name: str) -> str:
        if problem := view_problem(name):
            raise Rejected(problem)
        return name.capitalize()

    def promote(self, package: str, version: str, view: str) -> None:
        with self._lock:
            held = self._live(package, version)
            views = tuple(sorted({*held.published.views, self.view(view)}))
            held.published = replace(held.published, views=views)

    def delete(self, package: str, version: str) -> None:
        with self._lock:
            held = self._live(package, version)
            held.published = replace(held.published, deleted=True, views=())

    def hold(
        self,
        package: str,
        version: str,
        contents: Mapping[str, bytes],
        entries: Sequence[FileEntry],
    ) -> None:
        """Put something into the feed that no publish would let through."""
        published = Published(package, version, "", EPOCH)
        held = _Version(published, dict(contents), tuple(entries))
        self._packages.setdefault(package, {})[version] = held

    def _live(self, package: str, version: str) -> _Version:
        with self._lock:
            found = self._packages.get(package, {}).get(version)
            if found is None or found.published.deleted:
                raise NotFound(f"{package} {version}")
            return found


class Fault(StrEnum):
    """One misbehaviour of one call."""

    DOWN = "down"
    THROTTLED = "throttled"
    DENIED = "denied"
    REFUSED = "refused"
    FULL = "full"
    MISSING = "missing"
    HALFWAY = "halfway"
    """publish: some bytes, then the connection is gone; nothing is committed."""
    LOST = "lost"
    """publish, promote: it is done, but the reply does not arrive."""
    SILENT = "silent"
    """publish: no reply, and nothing was committed."""
    UNTRUE = "untrue"
    """publish: says that it is done, and did nothing."""
    CUT = "cut"
    """listing: a part of it, then an error."""
    SHORT = "short"
    """listing: a part of it, and no error at all."""
    EMPTY = "empty"
    """listing, find: nothing, although there is something."""
    ALTERED = "altered"
    """files: another digest than the feed has."""


RETRY_AFTER = 17.0

_RAISED: Mapping[Fault, Callable[[str], Exception]] = {
    Fault.DOWN: Unavailable,
    Fault.THROTTLED: lambda text: Unavailable(text, retry_after=RETRY_AFTER),
    Fault.DENIED: Unauthorized,
    Fault.REFUSED: Rejected,
    Fault.FULL: NoSpace,
    Fault.MISSING: NotFound,
    Fault.SILENT: OutcomeUnknown,
}


class FlakyFeed:
    """Any feed, with faults on demand: each call of a method takes the next one planned for it."""

    def __init__(self, inner: Feed) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}
        """Run once before the next call of a method goes through: a rival, a kill, a cancel."""
        self._faults: dict[str, deque[Fault | None]] = defaultdict(deque)
        self._lock = threading.Lock()

    def plan(self, method: str, *faults: Fault | None) -> FlakyFeed:
        """Faults for the next calls of a method; None lets one call through."""
        self._faults[method].extend(faults)
        return self

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    @property
    def is_new(self) -> bool:
        return self.inner.is_new

    def check(self) -> None:
        self._next("check")
        self.inner.check()

    def preflight(self, plan: Sequence[tuple[str, str]] = ()) -> None:
        self._next("preflight")
        self.inner.preflight(plan)

    def packages(self) -> Iterator[str]:
        return self._listing("packages", self.inner.packages)

    def versions(self, package: str, prefix: str = "") -> Iterator[Published]:
        return self._listing("versions", lambda: self.inner.versions(package, prefix))

    def find(self, package: str, version: str) -> Published | None:
        if self._next("find") is Fault.EMPTY:
            return None
        return self.inner.find(package, version)

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
        fault = self._next("publish")
        if fault is Fault.HALFWAY:
            total = sum(file.entry.size for file in files)
            if progress:
                progress(total // 2, total)
            raise Unavailable("the connection was reset")
        if fault is Fault.UNTRUE:
            return Published(package, version, description)
        done = self.inner.publish(
            package, version, files, description, timeout=timeout, progress=progress
        )
        if fault is Fault.LOST:
            raise OutcomeUnknown("the reply was lost")
        return done

    def files(self, package: str, version: str) -> tuple[FileEntry, ...]:
        fault = self._next("files")
        files = self.inner.files(package, version)
        if fault is Fault.ALTERED:
            return (*files[:-1], replace(files[-1], sha256="f" * 64))
        return files[:-1] if fault is Fault.SHORT else files

    def fetch(
        self,
        package: str,
        version: str,
        dest: Path,
        patterns: Sequence[str] = ("*",),
        *,
        progress: Progress | None = None,
    ) -> tuple[FileEntry, ...]:
        fault = self._next("fetch")
        got = self.inner.fetch(package, version, dest, patterns, progress=progress)
        if fault is Fault.HALFWAY:
            raise Unavailable("the connection was reset")
        if fault is Fault.SHORT:
            (dest / got[-1].path).unlink()
        return got

    def view(self, name: str) -> str:
        return self.inner.view(name)

    def promote(self, package: str, version: str, view: str) -> None:
        fault = self._next("promote")
        self.inner.promote(package, version, view)
        if fault is Fault.LOST:
            raise Unavailable("the reply was lost")

    def _next(self, method: str) -> Fault | None:
        with self._lock:
            self.calls.append(method)
            before = self.before.pop(method, None)
            planned = self._faults[method]
            fault = planned.popleft() if planned else None
        if before:
            before()
        raised = _RAISED.get(fault) if fault else None
        if raised:
            raise raised(f"{method}: {fault}")
        return fault

    def _listing(self, method: str, real: Callable[[], Iterator[T]]) -> Iterator[T]:
        fault = self._next(method)
        if fault is Fault.EMPTY:
            return iter(())
        found = list(real())
        if fault is Fault.CUT:
            return _cut(found)
        return iter(found[: len(found) // 2] if fault is Fault.SHORT else found)


def _cut(found: Sequence[T]) -> Iterator[T]:
    yield from found[: len(found) // 2]
    raise Unavailable("the connection was reset in the middle of a listing")
