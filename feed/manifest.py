"""The manifest of a version in a directory feed: one JSON file, written once.

A manifest that cannot be understood is an error that names the file. It is never skipped: a
version that silently left a listing would be built and published again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

from feed.description import parse_tree
from feed.errors import Corrupt
from feed.interface import Published
from matrix.codec import from_json, to_json
from matrix.digest import FileEntry

FORMAT = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the feed knows of a version."""

    package: str
    version: str
    description: str
    published_at: datetime
    files: tuple[FileEntry, ...]

    def to_json(self) -> bytes:
        """The bytes of the manifest file."""
        value = {"format": FORMAT, **to_json(self)}
        return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()

    def published(self, views: tuple[str, ...] = ()) -> Published:
        """The same as a listing shows it; views are kept elsewhere."""
        return Published(
            self.package,
            self.version,
            parse_tree(self.description),
            self.description,
            self.published_at,
            views,
        )


def parse_manifest(data: bytes, path: str, package: str, version: str) -> Manifest:
    """The whole manifest, every file entry checked."""
    try:
        value = json.loads(data)
        found = value.get("format") if isinstance(value, dict) else type(value).__name__
        if found != FORMAT:
            raise _corrupt(path, f"format {found!r}, this modelmill reads {FORMAT}")
        manifest = from_json(value, Manifest, exact=False)
    except ValueError as error:
        raise _corrupt(path, str(error)) from error
    if (manifest.package, manifest.version) != (package, version):
        raise _corrupt(path, f"it describes {manifest.package} {manifest.version}")
    for file in manifest.files:
        if file.size < 0 or not _SHA256.fullmatch(file.sha256):
            raise _corrupt(path, f"{file.path!r} has no size or no SHA-256")
    return manifest


def _corrupt(path: str, what: str) -> Corrupt:
    return Corrupt(
        f"the manifest {path} cannot be read: {what}",
        hint="restore the file from a copy of the feed; without it the listing is incomplete",
    )
