"""What a published package says about itself: its manifest and the recipe that it was made by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feed.attestation import parse, recipe_in
from feed.errors import Corrupt, NotFound
from feed.interface import Feed
from feed.reader import pull
from matrix.digest import MANIFEST, PROVENANCE

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Original:
    """What a package says about itself."""

    title: str
    manifest: Json
    recipe: Json
    stamp: str
    """Of the sweep that made it."""
    tree: str

    @classmethod
    def read(cls, title: str, folder: Path, tree: str) -> Original:
        """From the manifest and the provenance in a folder."""
        try:
            manifest = parse((folder / MANIFEST).read_bytes())
            stated = parse((folder / PROVENANCE).read_bytes())
            made = stated["predicate"]["buildDefinition"]["internalParameters"]
            return cls(title, manifest, recipe_in(stated), str(made["stamp"]), tree)
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise Corrupt(f"{title}: {error}") from error


def published_original(feed: Feed, package: str, version: str, folder: Path) -> Original:
    """From the feed, with a folder to work in."""
    pulled = pull(feed, package, version, folder, (MANIFEST, PROVENANCE))
    if not (folder / PROVENANCE).is_file():
        raise NotFound(
            f"{package} {version} has no {PROVENANCE}: nobody states how it was made",
            hint="only packages with provenance can be made anew or compiled",
        )
    return Original.read(f"{package} {version}", folder, pulled.tree)
