"""Digests identify files, trees and settings by their content; always the full SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MANIFEST = "modelmill.json"

BUILD_RECORD = "build.json"
SBOM = "sbom.cdx.json"
PROVENANCE = "provenance.json"
SIGNATURE = "provenance.intoto.jsonl"

RUN_RECORDS = frozenset({BUILD_RECORD, SBOM, PROVENANCE, SIGNATURE})
"""The files of a package that may differ from run to run: they record how, where and when its
content was made, so the tree digest leaves them out. Older packages lack some of them."""


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """A file by its relative POSIX path, its size and the SHA-256 of its bytes (hex)."""

    path: str
    size: int
    sha256: str


def tree_digest(files: Iterable[FileEntry]) -> str:
    """The identity of a package's content: the same whenever and wherever it was built."""
    return files_digest(file for file in files if file.path not in RUN_RECORDS)


def files_digest(files: Iterable[FileEntry]) -> str:
    """The identity of any files (a source, a stage's outputs), whatever they are called."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda entry: entry.path.encode()):
        digest.update(f"{file.sha256} {file.size} {file.path}\n".encode())
    return digest.hexdigest()


def canonical_json(value: Any) -> bytes:
    """The one encoding of a value, so that equal values have equal digests on every machine."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def value_digest(value: Any) -> str:
    """The SHA-256 of a JSON value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
