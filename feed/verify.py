"""Verify a package: its bytes against its manifest, its provenance and its SBOM.

A feed can only show that what it hands out is what it was given. This goes further: that every
file is the one which the build has stated, and (with a key) that the statement is the builder's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from matrix.digest import (
    BUILD_RECORD,
    MANIFEST,
    PROVENANCE,
    SBOM,
    SIGNATURE,
    FileEntry,
    tree_digest,
)
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
    """Download a version into a folder below `work` that goes again, and verify it."""
    with tempfile.TemporaryDirectory(prefix="modelmill-verify-", dir=work) as folder:
        dest = Path(folder) / "package"
        try:
            pulled = pull(feed, package, version, dest, progress=progress)
        except (Corrupt, UnsafePath) as error:
            checks = (Check("content", (error.message,)),)
            return Verdict(f"{package} {version}", "", 0, checks)
        return _verdict(f"{package} {version}", dest, pulled.files, version, signature)


def verify_folder(folder: Path, *, signature: CheckSignature | None = None) -> Verdict:
    """Verify a package that was pulled; every file there must belong to it."""
    folder = long_path(folder)
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    with local_errors(folder):
        files = tuple(_entries(folder))
        return _verdict(str(folder), folder, files, None, signature)


def _entries(folder: Path) -> Iterator[FileEntry]:
    for path in files_below(folder):
        if path.is_symlink():
            raise UnsafePath(f"{path} is a link: a package has none")
        yield hash_file(path, path.relative_to(folder).as_posix())


def _verdict(
    title: str,
    folder: Path,
    files: Iterable[FileEntry],
    version: str | None,
    signature: CheckSignature | None,
) -> Verdict:
    entries = tuple(files)
    held = {entry.path for entry in entries}
    checks = _checks(folder, entries, held, version, signature)
    return Verdict(title, tree_digest(entries), len(entries), tuple(checks))


def _checks(
    folder: Path,
    entries: tuple[FileEntry, ...],
    held: set[str],
    version: str | None,
    signature: CheckSignature | None,
) -> list[Check]:
    if MANIFEST not in held and INDEX_FILE in held:
        note = "a sweep index: it lists packages and has no provenance of its own"
        return [Check("content", note=note)]
    if MANIFEST not in held:
        return [Check("content", (f"there is no {MANIFEST}: not a package of ours",))]
    try:
        manifest = parse((folder / MANIFEST).read_bytes())
    except ValueError as error:
        return [Check(MANIFEST, (str(error),))]
    record = _record(folder, held)
    return [
        Check("content", tuple(manifest_problems(manifest, entries))),
        _document(
            folder,
            held,
            PROVENANCE,
            lambda value: provenance_problems(value, manifest, entries, version, record),
        ),
        _document(folder, held, SBOM, lambda value: sbom_problems(value, manifest, entries)),
        _signature(folder, held, signature),
    ]


def _record(folder: Path, held: set[str]) -> Json | None:
    """The build record; that its bytes are those which were named is told elsewhere."""
    try:
        return parse((folder / BUILD_RECORD).read_bytes()) if BUILD_RECORD in held else None
    except ValueError:
        return None


def _document(folder: Path, held: set[str], name: str, check: Callable[..., list[str]]) -> Check:
    if name not in held:
        return Check(name, ("it is missing: nothing states how this package was made",))
    try:
        return Check(name, tuple(check(parse((folder / name).read_bytes()))))
    except ValueError as error:
        return Check(name, (str(error),))


def _signature(folder: Path, held: set[str], signature: CheckSignature | None) -> Check:
    if signature is None:
        return _unchecked(folder, held)
    if not {SIGNATURE, PROVENANCE} <= held:
        return Check("signature", ("the package is not signed",))
    try:
        signature((folder / SIGNATURE).read_bytes(), (folder / PROVENANCE).read_bytes())
    except MillError as error:
        return Check("signature", (error.message,))
    return Check("signature", note="by the given key")


def _unchecked(folder: Path, held: set[str]) -> Check:
    """Without a key: whose signature it is stays open, but not what it is of."""
    if SIGNATURE not in held:
        return Check("signature", note="not signed")
    try:
        statement = sealed((folder / SIGNATURE).read_bytes())
    except ValueError as error:
        return Check("signature", (f"{SIGNATURE} cannot be read: {error}",))
    if PROVENANCE not in held or statement != (folder / PROVENANCE).read_bytes():
        return Check("signature", (f"what is signed is not {PROVENANCE}",))
    return Check("signature", note="signed, not checked: no key was given")
