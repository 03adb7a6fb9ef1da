"""Digests: how files, trees and settings are named by their content. Always the full SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

BUILD_RECORD = "build.json"
"""The one file of a package that may differ from run to run; not part of its tree digest."""

MANIFEST = "modelmill.json"


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """A file by its relative POSIX path, its size and the SHA-256 of its bytes (hex)."""

    path: str
    size: int
    sha256: str


def tree_digest(files: Iterable[FileEntry]) -> str:
    """The identity of a package's content: the same whenever and wherever it was built."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda entry: entry.path.encode()):
        if file.path != BUILD_RECORD:
            digest.update(f"{file.sha256} {file.size} {file.path}\n".encode())
    return digest.hexdigest()


def canonical_json(value: Any) -> bytes:
    """One spelling for one value, so that equal values have equal digests on every machine."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def value_digest(value: Any) -> str:
    """The SHA-256 of a JSON value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
