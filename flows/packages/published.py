"""Reading published packages: what one says about itself, and what compiled cells are made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feed.attestation import parse, recipe_in
from feed.errors import Corrupt, FeedError, NotFound, Outage, Unauthorized, Unavailable
from feed.interface import Feed
from feed.reader import pull
from flows.cli.settings import Settings
from flows.sweep.workspace import Workspace
from matrix.digest import MANIFEST, PROVENANCE
from matrix.errors import UsageError
from matrix.model import EXPORT, Cell
from matrix.status import FailureClass
from workers.build.origin import FETCH, PACKAGE
from workers.errors import BuildFailed

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Original:
    """What a package says about itself: its manifest, and the recipe that it was made by."""

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
        text = f"{package} {version} has no {PROVENANCE}: nothing states how it was made"
        hint = "only packages with provenance can be built again or compiled"
        raise NotFound(text, hint=hint)
    return Original.read(f"{package} {version}", folder, pulled.tree)


def published_export(feed: Feed, package: str, manifest: Json, dest: Path) -> Path | None:
    """Pull the export that a manifest names, if the feed has it."""
    wanted = (manifest.get("export") or {}).get("tree")
    for one in feed.versions(package):
        if wanted and one.tree == wanted and not one.deleted:
            pull(feed, package, one.version, dest)
            return dest
    return None


def fetch_portable(settings: Settings, cell: Cell, folder: Path) -> None:
    """The package that a compiled cell is made from, out of the feed, with its export, which
    verification compares with; see `build.origin`."""
    if cell.origin is None:
        raise AssertionError("only what is compiled from a package is fetched")
    try:
        feed = Workspace(settings).open_feed()
        pull(feed, cell.package, cell.origin.version, folder / PACKAGE)
        manifest = json.loads((folder / PACKAGE / MANIFEST).read_bytes())
        published_export(feed, cell.package, manifest, folder / EXPORT)
    except FeedError as error:
        failure, passes = FailureClass.UNKNOWN, isinstance(error, Unavailable)
        if isinstance(error, (Unavailable, Outage, Unauthorized)):
            failure = FailureClass.NETWORK
        elif isinstance(error, NotFound):
            failure = FailureClass.UNSUPPORTED
        text, hint = error.message, error.hint
        raise BuildFailed(failure, FETCH, text, hint=hint, retryable=passes) from error
    except (ValueError, UsageError) as error:
        raise BuildFailed(FailureClass.UNKNOWN, FETCH, str(error)) from error
