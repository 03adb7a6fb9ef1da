"""Where things are in the folder of a directory feed, and the marker that makes it one.

modelmill-feed.json                     the marker, with the version of this layout
blobs/sha256/ab/<digest>                every file once, by its content
packages/<package>/<version>.json       one manifest per version, written once and last
views/<view>/<package>/<version>        empty markers
tmp/                                    what is being written; nothing else is ever partial

A manifest that cannot be understood is an error that names the file. It is never skipped: a
version that silently left a listing would be built and published again.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from feed.errors import Corrupt, NotFound, Rejected, feed_errors
from feed.interface import Published
from machine.disk import existing
from machine.files import create_exclusive, read_json, remove, unlink
from machine.processes import abandoned, claim, claim_in
from matrix.codec import from_versioned, to_json
from matrix.digest import SHA256, FileEntry

MARKER = "modelmill-feed.json"
LAYOUT = 1

FORMAT = 1
"""Of manifests."""
STAGE = "publish-"
"""How everything below `tmp` begins that only its owner needs: gone with it."""

_MARKER_TEMP = ".modelmill-feed-"


class Layout:
    """The paths below the root of a feed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marker = root / MARKER
        self.packages = root / "packages"
        self.views = root / "views"
        self.tmp = root / "tmp"  # on the same file system as the final names

    def blob(self, sha256: str) -> Path:
        """The place of a content."""
        return self.root / "blobs" / "sha256" / sha256[:2] / sha256

    def manifest(self, package: str, version: str) -> Path:
        """The place of a version."""
        return self.packages / package / f"{version}.json"

    def check(self) -> None:
        """Refuse what is not a feed: an unmounted disk must not look like an empty feed."""
        try:
            layout = read_json(self.marker)["layout"]
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(
                f"no directory feed at {self.root} (it has no {MARKER})",
                hint="check the path and the disk; a sweep that publishes makes a new feed",
            ) from error
        except (ValueError, LookupError, TypeError) as error:
            raise Rejected(f"{self.marker} is not the marker of a feed") from error
        if layout != LAYOUT:
            raise Rejected(
                f"the feed {self.root} has layout {layout!r}, this modelmill knows {LAYOUT}",
                hint="use the modelmill that made it, or a newer one",
            )

    def is_new(self) -> bool:
        """Whether a feed could be made here: the folder is missing or empty."""
        with feed_errors("cannot read", self.root):
            return not self.marker.exists() and not (self.root.exists() and self._content())

    def _content(self) -> list[str]:
        return [p.name for p in self.root.iterdir() if not p.name.startswith(_MARKER_TEMP)]

    def create(self) -> None:
        """Make a new feed of an empty or missing folder; one that is a feed is not changed."""
        if not self.marker.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            if self._content() and not self.marker.exists():
                raise Rejected(
                    f"{self.root} is not empty and has no {MARKER}, so it is not used as a feed",
                    hint="give an empty or new folder",
                )
            self._write_marker()
        self.check()
        self.tmp.mkdir(exist_ok=True)

    def prepare(self) -> None:
        """Make the feed if it is new, and prove that this user can write to it."""
        with feed_errors("cannot write", self.root):
            self.create()
            probe = self.tmp / f"{STAGE}{claim()}"
            probe.touch()
            unlink(probe)
            for folder in (self.packages, self.root / "blobs" / "sha256"):
                folder.mkdir(parents=True, exist_ok=True)

    def check_access(self) -> None:
        """Whether this user could publish here, as far as a check without writing can say."""
        with feed_errors("cannot write", self.root):
            there = existing(self.root)
            if not there.is_dir() or not os.access(there, os.W_OK):
                raise PermissionError(errno.EACCES, "it cannot be written", str(there))

    def _write_marker(self) -> None:
        temp = self.root / f"{_MARKER_TEMP}{claim()}"
        try:
            temp.write_text(json.dumps({"feed": "modelmill", "layout": LAYOUT}) + "\n", "utf-8")
            create_exclusive(temp, self.marker)
        except FileExistsError:
            pass  # another process made the same feed at the same moment
        finally:
            unlink(temp)

    def sweep_stale(self) -> list[Path]:
        """Remove what dead processes left unfinished; what is being written stays."""
        left = [*self.root.glob(f"{_MARKER_TEMP}*")]
        if self.tmp.is_dir():
            left += [path for path in self.tmp.iterdir() if path.name.startswith(STAGE)]
        # The files of one publisher are removed together, when the last of them is old enough.
        alive = {claim_in(path.name) for path in left if not abandoned(path)}
        gone = [path for path in left if claim_in(path.name) not in alive]
        for path in gone:
            remove(path)
        return gone


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
        return Published(self.package, self.version, self.description, self.published_at, views)


def parse_manifest(data: bytes, path: str, package: str, version: str) -> Manifest:
    """The whole manifest, every file entry checked."""
    try:
        manifest = from_versioned(data, Manifest, FORMAT)
    except ValueError as error:
        raise corrupt(path, str(error)) from error
    if (manifest.package, manifest.version) != (package, version):
        raise corrupt(path, f"it describes {manifest.package} {manifest.version}")
    for file in manifest.files:
        if file.size < 0 or not SHA256.fullmatch(file.sha256):
            raise corrupt(path, f"{file.path!r} has no size or no SHA-256")
    return manifest


def corrupt(path: str, what: str) -> Corrupt:
    """The error for a manifest that cannot be understood."""
    return Corrupt(
        f"the manifest {path} cannot be read: {what}",
        hint="restore the file from a copy of the feed; without it the listing is incomplete",
    )
