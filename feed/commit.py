"""The critical section of a directory feed: from checked files to a version, or to nothing.

One process at a time moves blobs to their names and then creates the manifest. A note of what
is being moved lies beside the lock meanwhile; whoever gets the lock and finds a note knows that
its writer died half-way, and takes the blobs of that version away again. So kill -9 leaves
neither half a version nor a blob that nothing names.

The manifest is created exclusively: on a file system whose locks do not work, that alone still
keeps a version from being written twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from feed.errors import Corrupt, Rejected, Unavailable, VersionExists
from feed.layout import Layout, Manifest
from machine.files import create_exclusive, flush_all, flush_folder, move, read_json, unlink
from machine.locks import take
from machine.processes import claim, owner_alive
from machine.waits import WaitedTooLong, WaitRules
from matrix.codec import from_json, to_json
from matrix.digest import SHA256, FileEntry
from matrix.naming import Limits

LOCK_WAIT = 120.0


@dataclass(frozen=True, slots=True)
class _Note:
    """What is being moved, and by whom."""

    owner: str
    package: str
    version: str
    blobs: list[str]


class Committer:
    """Commits staged versions to one feed."""

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self._layout = layout
        self._limits = limits
        self._note = layout.tmp / "commit.json"

    @contextmanager
    def exclusive(self, wait: float | None = None) -> Iterator[None]:
        """Hold the feed's commit lock; first undo what a holder that died left behind."""
        root = self._layout.root
        limit = LOCK_WAIT if wait is None else max(0.0, min(wait, LOCK_WAIT))
        try:
            lock = take(self._layout.tmp / "commit.lock", WaitRules(limit), longest_sleep=0.005)
        except WaitedTooLong as error:
            raise Unavailable(f"the feed {root} is locked by another publish") from error
        except NotImplementedError as error:
            raise Rejected(f"the file system of {root} has no file locks") from error
        try:
            self._undo()
            yield
        finally:
            lock.release()

    def commit(self, version: Manifest, written: Path, staged: Mapping[str, Path]) -> None:
        """Make a version visible, inside `exclusive`.

        `written`: its manifest; `staged`: the blobs that the feed does not have yet.
        """
        final = self._layout.manifest(version.package, version.version)
        if final.exists():
            raise VersionExists(f"{version.package} {version.version} is in the feed already")
        fresh = self._check_headroom(final.parent, version.package)
        sizes = {file.sha256: self._size(file.sha256) for file in version.files}
        new = {file.sha256 for file in version.files if sizes[file.sha256] != file.size}
        if not new <= staged.keys():
            # Their publisher died, and they were removed again; nothing has been changed yet.
            raise Unavailable(f"the feed {self._layout.root} has lost files that it had: try again")
        # A damaged blob that is replaced stays if we die: other versions name it too.
        ours = sorted(sha256 for sha256 in new if sizes[sha256] is None)
        self._write_note(version, ours)
        try:
            self._place({sha256: staged[sha256] for sha256 in sorted(new)})
            self._show(written, final, fresh=fresh)
        except Exception:
            with suppress(OSError):  # then the next process that gets the lock does it
                self._take_back(final, ours)
            raise
        unlink(self._note)

    def _show(self, manifest: Path, final: Path, *, fresh: bool) -> None:
        if fresh:
            final.parent.mkdir(parents=True, exist_ok=True)
        try:
            create_exclusive(manifest, final)
        except FileExistsError as error:
            text = f"{final.parent.name} {final.stem} is in the feed already"
            raise VersionExists(text) from error
        parents = [self._layout.packages] if fresh else []
        flush_all(flush_folder, [final.parent, *parents])

    def has(self, file: FileEntry) -> bool:
        """Whether the content is there; it was checked when it was written."""
        return self._size(file.sha256) == file.size

    def _size(self, sha256: str) -> int | None:
        try:
            return self._layout.blob(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def _place(self, blobs: Mapping[str, Path]) -> None:
        folders = set()
        for digest, temp in blobs.items():
            final = self._layout.blob(digest)
            try:
                move(temp, final)
            except FileNotFoundError:
                final.parent.mkdir(parents=True, exist_ok=True)
                folders.add(final.parent.parent)
                move(temp, final)
            folders.add(final.parent)
        flush_all(flush_folder, folders)

    def _write_note(self, version: Manifest, blobs: list[str]) -> None:
        note = _Note(claim(), version.package, version.version, blobs)
        half = self._layout.tmp / "commit.new"  # a fixed name: kill -9 leaves one at most
        half.write_text(json.dumps(to_json(note)), "utf-8")
        move(half, self._note)

    def _undo(self) -> None:
        try:
            note = from_json(read_json(self._note), _Note)
            self._check(note)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise Corrupt(
                f"{self._note} cannot be read: {error}", hint="remove the file"
            ) from error
        final = self._layout.manifest(note.package, note.version)
        if not final.exists() and owner_alive(note.owner):
            raise Unavailable(f"file locks do not work in {self._layout.root}")
        self._take_back(final, note.blobs)

    def _check(self, note: _Note) -> None:
        """Raise `ValueError` unless all that would be removed is the feed's: whoever can write to
        the feed can write a note."""
        named = self._limits.package.problem(note.package)
        named = named or self._limits.version.problem(note.version)
        if named or not all(map(SHA256.fullmatch, note.blobs)):
            raise ValueError(named or "it names a blob that is no digest")

    def _take_back(self, final: Path, blobs: Iterable[str]) -> None:
        """Remove what was moved for a version that never showed, and the note of it."""
        if not final.exists():
            for digest in blobs:
                unlink(self._layout.blob(digest))
            with suppress(OSError):  # it holds other versions, or was never made
                final.parent.rmdir()
        unlink(self._note)

    def _check_headroom(self, folder: Path, package: str) -> bool:
        """Whether the package is new."""
        try:
            count = len(os.listdir(folder))  # noqa: PTH208 - only counted
        except FileNotFoundError:
            return True
        if count >= self._limits.versions:
            raise Rejected(
                f"{package} has {count} versions, deleted ones included; the feed takes no more",
                hint="publish under another package name",
            )
        return False
