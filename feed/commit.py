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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from feed.disk import Syncer, create_exclusive
from feed.errors import Corrupt, Rejected, Unavailable, VersionExists
from feed.layout import Layout
from feed.owner import claim, owner_alive
from matrix.digest import FileEntry
from matrix.naming import MAX_VERSIONS

LOCK_WAIT = 120.0


@dataclass(frozen=True, slots=True)
class Staged:
    """A version ready to be committed: its manifest, and the blobs that the feed had not."""

    package: str
    version: str
    manifest: Path
    files: tuple[FileEntry, ...]
    blobs: Mapping[str, Path]


class Committer:
    """Commits staged versions to one feed."""

    def __init__(self, layout: Layout, syncer: Syncer) -> None:
        self._layout = layout
        self._syncer = syncer
        self._note = layout.tmp / "commit.json"

    @contextmanager
    def exclusive(self, wait: float | None = None) -> Iterator[None]:
        """Hold the feed's commit lock; first undo what a dead holder left."""
        root = self._layout.root
        lock = FileLock(self._layout.tmp / "commit.lock", thread_local=False)
        limit = LOCK_WAIT if wait is None else max(0.0, min(wait, LOCK_WAIT))
        try:
            lock.acquire(timeout=limit, poll_interval=0.005)
        except Timeout as error:
            raise Unavailable(f"the feed {root} is locked by another publish") from error
        except NotImplementedError as error:
            raise Rejected(f"the file system of {root} has no file locks") from error
        try:
            self._undo()
            yield
        finally:
            lock.release()

    def commit(self, staged: Staged) -> list[str]:
        """Make the version visible. Returns the digests that are missing, if any; then nothing
        happened. Call it inside `exclusive`."""
        final = self._layout.manifest(staged.package, staged.version)
        if final.exists():
            raise VersionExists(f"{staged.package} {staged.version} is in the feed already")
        self._check_headroom(final.parent, staged.package)
        new = [file for file in self._unique(staged.files) if not self.has(file)]
        missing = [file.sha256 for file in new if file.sha256 not in staged.blobs]
        if missing:
            return missing
        self._write_note(staged, new)
        self._place({file.sha256: staged.blobs[file.sha256] for file in new})
        fresh = not final.parent.exists()
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            create_exclusive(staged.manifest, final)
        except FileExistsError as error:
            text = f"{staged.package} {staged.version} is in the feed already"
            raise VersionExists(text) from error
        parents = [self._layout.packages] if fresh else []
        self._syncer.folders([final.parent, *parents])
        self._note.unlink(missing_ok=True)
        return []

    def has(self, file: FileEntry) -> bool:
        """Whether the content is there; it was checked when it was written."""
        try:
            return self._layout.blob(file.sha256).stat().st_size == file.size
        except FileNotFoundError:
            return False

    def _place(self, blobs: Mapping[str, Path]) -> None:
        folders = set()
        for digest, temp in blobs.items():
            final = self._layout.blob(digest)
            if not final.parent.exists():
                final.parent.mkdir(parents=True, exist_ok=True)
                folders.add(final.parent.parent)
            temp.replace(final)
            folders.add(final.parent)
        self._syncer.folders(folders)

    def _write_note(self, staged: Staged, new: list[FileEntry]) -> None:
        note = {
            "owner": claim(),
            "package": staged.package,
            "version": staged.version,
            # A damaged blob that is replaced stays: other versions name it too.
            "blobs": [f.sha256 for f in new if not self._layout.blob(f.sha256).exists()],
        }
        temp = self._note.with_suffix(".new")
        temp.write_text(json.dumps(note), "utf-8")
        temp.replace(self._note)

    def _undo(self) -> None:
        self._note.with_suffix(".new").unlink(missing_ok=True)
        try:
            note = json.loads(self._note.read_bytes())
        except FileNotFoundError:
            return
        except ValueError as error:
            raise Corrupt(f"{self._note} cannot be read", hint="remove the file") from error
        final = self._layout.manifest(note["package"], note["version"])
        if not final.exists():
            if owner_alive(note["owner"]):
                raise Unavailable(f"file locks do not hold in {self._layout.root}")
            for digest in note["blobs"]:
                self._layout.blob(digest).unlink(missing_ok=True)
            with suppress(OSError):  # it holds other versions, or was never made
                final.parent.rmdir()
        self._note.unlink(missing_ok=True)

    def _check_headroom(self, folder: Path, package: str) -> None:
        if folder.is_dir() and sum(1 for _ in folder.iterdir()) >= MAX_VERSIONS:
            raise Rejected(
                f"{package} has {MAX_VERSIONS} versions, deleted ones included; no more fit",
                hint="publish under another package name",
            )

    @staticmethod
    def _unique(files: tuple[FileEntry, ...]) -> list[FileEntry]:
        return list({file.sha256: file for file in files}.values())
