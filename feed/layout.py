"""Where things are in the folder of a directory feed, and the marker that makes it one.

modelmill-feed.json                     the marker, with the version of this layout
blobs/sha256/ab/<digest>                every file once, by its content
packages/<package>/<version>.json       one manifest per version, written once and last
views/<view>/<package>/<version>        empty markers
tmp/                                    what is being written; nothing else is ever partial
"""

from __future__ import annotations

import json
from pathlib import Path

from feed.errors import NotFound, Rejected
from machine.claims import abandoned, claim, claim_in
from machine.folders import remove
from machine.links import create_exclusive

MARKER = "modelmill-feed.json"
LAYOUT = 1

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
        """Refuse a folder that is no feed: an unmounted disk must not look like an empty feed."""
        try:
            data = self.marker.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(
                f"no directory feed at {self.root} (it has no {MARKER})",
                hint="is the path right, the disk mounted? a sweep that publishes makes new feeds",
            ) from error
        try:
            layout = json.loads(data)["layout"]
        except (ValueError, KeyError, TypeError) as error:
            raise Rejected(f"{self.marker} is not the marker of a feed") from error
        if layout != LAYOUT:
            raise Rejected(
                f"the feed {self.root} has layout {layout!r}, this modelmill knows {LAYOUT}",
                hint="use the modelmill that made it, or a newer one",
            )

    def create(self) -> None:
        """Make a new feed of an empty or missing folder; leave one that is a feed as it is."""
        if not self.marker.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            foreign = [p.name for p in self.root.iterdir() if not p.name.startswith(_MARKER_TEMP)]
            if foreign and not self.marker.exists():
                raise Rejected(
                    f"{self.root} is not empty and has no {MARKER}, so it is not used as a feed",
                    hint="give an empty or new folder",
                )
            self._write_marker()
        self.check()
        self.tmp.mkdir(exist_ok=True)

    def _write_marker(self) -> None:
        temp = self.root / f"{_MARKER_TEMP}{claim()}"
        try:
            temp.write_text(json.dumps({"feed": "modelmill", "layout": LAYOUT}) + "\n", "utf-8")
            create_exclusive(temp, self.marker)
        except FileExistsError:
            pass  # another process made the same feed at the same moment
        finally:
            temp.unlink(missing_ok=True)

    def sweep_stale(self) -> list[Path]:
        """Remove what dead processes left unfinished; what is being written stays."""
        left = [*self.root.glob(f"{_MARKER_TEMP}*")]
        if self.tmp.is_dir():
            left += [path for path in self.tmp.iterdir() if path.name.startswith(STAGE)]
        # What one publisher has staged grows old file by file, and goes when the last of it has.
        alive = {claim_in(path.name) for path in left if not abandoned(path)}
        gone = [path for path in left if claim_in(path.name) not in alive]
        for path in gone:
            remove(path)
        return gone


STAGE = "publish-"
"""How everything below `tmp` begins that only its owner needs: gone with it."""
