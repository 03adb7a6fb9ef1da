"""What is wrong with a version, by its own files: manifest, provenance, SBOM and signature.

A feed can only show that what it hands out is what it was given. This goes further: that every
file is the one which the build has stated, that the statement is about the version that was asked
for, and (with a key) that the statement is the builder's. What a version is (a cell, an export, an
index) is what the statement says, whatever its files are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from feed.attestation import (
    Json,
    Name,
    is_record,
    kind_in,
    manifest_problems,
    name_in,
    parse,
    provenance_problems,
    sbom_problems,
    sealed,
    statement_problems,
)
from feed.index import INDEX_FILE
from machine.files import read_file
from matrix import digest
from matrix.errors import MillError
from matrix.manifest import checked_manifest, checked_record
from matrix.naming import INDEX

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
    """All that was looked at of one version."""

    title: str
    tree: str
    files: int
    checks: tuple[Check, ...]
    kind: str = ""
    """What the statement says that it is; empty: nothing states it."""
    package: str = ""
    version: str = ""
    """What the statement is about."""
    signed: bool = False
    """Whether the statement is signed with the key that was given."""

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong."""
        return [f"{check.name}: {text}" for check in self.checks for text in check.problems]

    @property
    def ok(self) -> bool:
        """Nothing is."""
        return not self.problems


def judge(
    title: str,
    folder: Path,
    files: Sequence[digest.FileEntry],
    *,
    name: Name | None = None,
    signature: CheckSignature | None = None,
) -> Verdict:
    """Look at a version whose manifest and records are in a folder. `files`: all that it has;
    `name`: the package and version that were asked for."""
    tree = digest.tree_digest(files)
    held = {entry.path for entry in files}
    judged = _Judged(folder, files, held, name)
    checks = tuple(judged.checks())
    sign = judged.signature(signature)
    stated = judged.stated
    try:
        about = (kind_in(stated), *name_in(stated)) if stated else ("", "", "")
    except ValueError:  # told among the problems
        about = ("", "", "")
    signed = signature is not None and not sign.problems
    return Verdict(title, tree, len(files), (*checks, sign), *about, signed)


@dataclass(slots=True)
class _Judged:
    folder: Path
    files: Sequence[digest.FileEntry]
    held: set[str]
    name: Name | None
    stated: Json | None = None
    """Once `checks` has read it."""

    def checks(self) -> Iterator[Check]:
        if digest.PROVENANCE not in self.held:
            missing = "it is missing: nothing states what this is and how it was made"
            yield Check(digest.PROVENANCE, (missing,))
            return
        try:
            self.stated = parse(self._read(digest.PROVENANCE))
        except ValueError as error:
            yield Check(digest.PROVENANCE, (str(error),))
            return
        found = statement_problems(self.stated, self.files, self.name)
        if is_record(self.stated):
            yield Check(digest.PROVENANCE, (*found, *self._record_problems(self.stated)))
            return
        if digest.MANIFEST not in self.held:
            yield Check("content", (f"there is no {digest.MANIFEST}: not a package of modelmill",))
            return
        try:
            manifest = checked_manifest(parse(self._read(digest.MANIFEST)))
        except ValueError as error:
            yield Check(digest.MANIFEST, (str(error),))
            return
        yield Check("content", tuple(manifest_problems(manifest, self.files)))
        # A record that is not the one which is named needs no second look.
        record = None if found else self._build_record()
        found += provenance_problems(self.stated, manifest, record)
        yield Check(digest.PROVENANCE, tuple(found))
        yield self._sbom(manifest)

    def _record_problems(self, stated: Json) -> Iterator[str]:
        kind = kind_in(stated)
        if digest.MANIFEST in self.held:
            yield f"it is called a record ({kind}), and has a {digest.MANIFEST} like a model"
        if kind == INDEX and INDEX_FILE not in self.held:
            yield f"it is called an index, and has no {INDEX_FILE}"

    def _build_record(self) -> Json | None:
        """None: another check reports what is wrong with it."""
        try:
            return checked_record(parse(self._read(digest.BUILD_RECORD)))
        except (OSError, ValueError):
            return None

    def _sbom(self, manifest: Json) -> Check:
        if digest.SBOM not in self.held:
            return Check(digest.SBOM, ("it is missing: nothing lists what this was made with",))
        try:
            document = parse(self._read(digest.SBOM))
        except ValueError as error:
            return Check(digest.SBOM, (str(error),))
        return Check(digest.SBOM, tuple(sbom_problems(document, manifest, self.files)))

    def signature(self, check: CheckSignature | None) -> Check:
        """Without a key, check only that the signature belongs to this statement."""
        if check is None:
            return self._unchecked()
        if not self.held >= digest.STATEMENT:
            return Check("signature", ("the package is not signed",))
        try:
            check(self._read(digest.SIGNATURE), self._read(digest.PROVENANCE))
        except MillError as error:
            return Check("signature", (error.message,))
        return Check("signature", note="by the given key")

    def _unchecked(self) -> Check:
        if digest.SIGNATURE not in self.held:
            return Check("signature", note="not signed")
        try:
            statement = sealed(self._read(digest.SIGNATURE))
        except ValueError as error:
            return Check("signature", (f"{digest.SIGNATURE} cannot be read: {error}",))
        if digest.PROVENANCE not in self.held or statement != self._read(digest.PROVENANCE):
            return Check("signature", (f"what is signed is not {digest.PROVENANCE}",))
        return Check("signature", note="signed, not checked: no key was given")

    def _read(self, name: str) -> bytes:
        return read_file(self.folder / name)
