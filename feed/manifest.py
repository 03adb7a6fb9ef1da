"""The manifest of a version in a directory feed: one JSON file, written once.

A manifest that cannot be understood is an error that names the file. It is never skipped: a
version that silently left a listing would be built and published again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from feed.description import parse_tree
from feed.errors import Corrupt
from feed.interface import Published
from matrix.digest import FileEntry

FORMAT = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the feed knows of a version. With `deleted_at` it is a tombstone: taken, but gone."""

    package: str
    version: str
    description: str
    published_at: datetime
    files: tuple[FileEntry, ...]
    deleted_at: datetime | None = None

    def to_json(self) -> bytes:
        """The bytes of the manifest file."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "package": self.package,
            "version": self.version,
            "description": self.description,
            "published_at": self.published_at.astimezone(UTC).isoformat(),
            "files": [
                {"path": file.path, "size": file.size, "sha256": file.sha256} for file in self.files
            ],
        }
        if self.deleted_at:
            value["deleted_at"] = self.deleted_at.astimezone(UTC).isoformat()
        return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()

    def published(self, views: tuple[str, ...] = ()) -> Published:
        """The same as a listing shows it; views are kept elsewhere."""
        gone = self.deleted_at is not None
        return Published(
            self.package,
            self.version,
            parse_tree(self.description),
            self.description,
            self.published_at,
            () if gone else views,
            gone,
        )


def parse_manifest(data: bytes, path: str, package: str, version: str) -> Manifest:
    """The whole manifest, every file entry checked."""
    value = _load(data, path, package, version)
    try:
        files = tuple(_entry(item) for item in value["files"])
        gone = value.get("deleted_at")
        return Manifest(
            package,
            version,
            value["description"],
            datetime.fromisoformat(value["published_at"]),
            files,
            datetime.fromisoformat(gone) if gone is not None else None,
        )
    except (TypeError, KeyError, ValueError) as error:
        raise _corrupt(path, f"{type(error).__name__}: {error}") from error


def _load(data: bytes, path: str, package: str, version: str) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise _corrupt(path, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _corrupt(path, "not a JSON object")
    if value.get("format") != FORMAT:
        raise _corrupt(path, f"format {value.get('format')!r}, this modelmill reads {FORMAT}")
    if value.get("package") != package or value.get("version") != version:
        raise _corrupt(path, f"it describes {value.get('package')} {value.get('version')}")
    if not isinstance(value.get("description"), str) or not isinstance(value.get("files"), list):
        raise _corrupt(path, "no description or no file list")
    return value


def _entry(item: object) -> FileEntry:
    if not isinstance(item, dict):
        raise TypeError("not an object")
    path, size, sha256 = item["path"], item["size"], item["sha256"]
    if not isinstance(path, str) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"bad path or size: {path!r}, {size!r}")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{path!r} has no SHA-256")
    return FileEntry(path, size, sha256)


def _corrupt(path: str, what: str) -> Corrupt:
    return Corrupt(
        f"the manifest {path} cannot be read: {what}",
        hint="restore the file from a copy of the feed; without it the listing is incomplete",
    )
