"""Verify a package: its bytes against its manifest, its provenance and its SBOM.

A feed can only show that what it hands out is what it was given. This goes further: that every
file is the one which the build has stated, and (with a key) that the statement is the builder's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from feed.attestation import (
    Json,
    manifest_problems,
    parse,
    provenance_problems,
    sbom_problems,
    sealed,
)
from feed.checked import hash_file
from feed.errors import Corrupt, NotFound, UnsafePath, local_errors
from feed.index import INDEX_FILE
from feed.interface import Feed, Progress
from feed.reader import pull
from machine.files import files_below, long_path
from matrix import digest
from matrix.errors import MillError

CheckSignature = Callable[[bytes, bytes], None]
"""(envelope, statement); raises a `MillError` that says what is wrong with the signature."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    problems: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All that was looked at of one package."""

    title: str
    tree: str
    files: int
    checks: tuple[Check, ...]

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong."""
        return [f"{check.name}: {text}" for check in self.checks for text in check.problems]

    @property
    def ok(self) -> bool:
        """Nothing is."""
        return not self.problems


def verify_published(
    feed: Feed,
    package: str,
    version: str,
    *,
    work: Path | None = None,
    signature: CheckSignature | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Download a version into a temporary folder below `work`, and verify it."""
    title = f"{package} {version}"
    with tempfile.TemporaryDirectory(prefix="modelmill-verify-", dir=work) as folder:
        dest = Path(folder) / "package"
        try:
            pulled = pull(feed, package, version, dest, progress=progress)
        except (Corrupt, UnsafePath) as error:
            return Verdict(title, "", 0, (Check("content", (error.message,)),))
        return _Package(title, dest, pulled.files, version, signature).verdict()


def verify_folder(folder: Path, *, signature: CheckSignature | None = None) -> Verdict:
    """Verify a package that was pulled; every file there must belong to it."""
    folder = long_path(folder)
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    with local_errors(folder):
        files = tuple(_entries(folder))
        return _Package(str(folder), folder, files, None, signature).verdict()


def _entries(folder: Path) -> Iterator[digest.FileEntry]:
    for path in files_below(folder):
        if path.is_symlink():
            raise UnsafePath(f"{path} is a link: a package has none")
        yield hash_file(path, path.relative_to(folder).as_posix())


@dataclass(frozen=True, slots=True)
class _Package:
    """A package in a folder."""

    title: str
    folder: Path
    files: tuple[digest.FileEntry, ...]
    version: str | None
    """None: it is not known under which one it was published."""
    signature: CheckSignature | None

    def verdict(self) -> Verdict:
        return Verdict(
            self.title, digest.tree_digest(self.files), len(self.files), tuple(self._checks())
        )

    def _holds(self, *names: str) -> bool:
        return set(names) <= {entry.path for entry in self.files}

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _checks(self) -> Iterator[Check]:
        if not self._holds(digest.MANIFEST):
            if self._holds(INDEX_FILE):
                note = "a sweep index: it lists packages and has no provenance of its own"
                yield Check("content", note=note)
            else:
                yield Check("content", (f"there is no {digest.MANIFEST}: not a package of ours",))
            return
        try:
            manifest = parse(self._read(digest.MANIFEST))
        except ValueError as error:
            yield Check(digest.MANIFEST, (str(error),))
            return
        yield Check("content", tuple(manifest_problems(manifest, self.files)))
        yield self._document(digest.PROVENANCE, partial(self._provenance_problems, manifest))
        yield self._document(digest.SBOM, lambda value: sbom_problems(value, manifest, self.files))
        yield self._signature()

    def _provenance_problems(self, manifest: Json, stated: Json) -> list[str]:
        try:  # that the build record's bytes are those which were named is checked elsewhere
            record = (
                parse(self._read(digest.BUILD_RECORD)) if self._holds(digest.BUILD_RECORD) else None
            )
        except ValueError:
            record = None
        return provenance_problems(stated, manifest, self.files, self.version, record)

    def _document(self, name: str, check: Callable[[Json], list[str]]) -> Check:
        if not self._holds(name):
            return Check(name, ("it is missing: nothing states how this package was made",))
        try:
            return Check(name, tuple(check(parse(self._read(name)))))
        except ValueError as error:
            return Check(name, (str(error),))

    def _signature(self) -> Check:
        if self.signature is None:
            return self._unchecked()
        if not self._holds(digest.SIGNATURE, digest.PROVENANCE):
            return Check("signature", ("the package is not signed",))
        try:
            self.signature(self._read(digest.SIGNATURE), self._read(digest.PROVENANCE))
        except MillError as error:
            return Check("signature", (error.message,))
        return Check("signature", note="by the given key")

    def _unchecked(self) -> Check:
        """Without a key, check only that the signature belongs to this statement."""
        if not self._holds(digest.SIGNATURE):
            return Check("signature", note="not signed")
        try:
            statement = sealed(self._read(digest.SIGNATURE))
        except ValueError as error:
            return Check("signature", (f"{digest.SIGNATURE} cannot be read: {error}",))
        if not self._holds(digest.PROVENANCE) or statement != self._read(digest.PROVENANCE):
            return Check("signature", (f"what is signed is not {digest.PROVENANCE}",))
        return Check("signature", note="signed, not checked: no key was given")
