"""Fetching the portable packages that compiled cells are made from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feed.errors import FeedError, NotFound, Outage, Unauthorized, Unavailable
from feed.interface import Feed
from feed.reader import pull
from flows.cli.settings import Settings
from flows.sweep.workspace import Workspace
from matrix.digest import MANIFEST
from matrix.errors import UsageError
from matrix.model import EXPORT, Cell
from matrix.status import FailureClass
from workers.build.origin import FETCH, PACKAGE
from workers.errors import BuildFailed


def fetch_portable(settings: Settings, cell: Cell, folder: Path) -> None:
    """From the feed, with its export, which verification compares with; see `build.origin`."""
    if cell.origin is None:
        raise AssertionError("only what is compiled from a package is fetched")
    try:
        feed = Workspace(settings).open_feed()
        pull(feed, cell.package, cell.origin.version, folder / PACKAGE)
        manifest = json.loads((folder / PACKAGE / MANIFEST).read_bytes())
        published_export(feed, cell.package, manifest, folder / EXPORT)
    except FeedError as error:
        away = isinstance(error, (Unavailable, Outage, Unauthorized))
        failure = FailureClass.NETWORK if away else FailureClass.UNKNOWN
        if isinstance(error, NotFound):
            failure = FailureClass.UNSUPPORTED
        raise BuildFailed(
            failure, FETCH, error.message, hint=error.hint, retryable=isinstance(error, Unavailable)
        ) from error
    except (ValueError, UsageError) as error:
        raise BuildFailed(FailureClass.UNKNOWN, FETCH, str(error)) from error


def published_export(
    feed: Feed, package: str, manifest: Mapping[str, Any], dest: Path
) -> Path | None:
    """Pull the export that a manifest names, if the feed has it."""
    wanted = (manifest.get("export") or {}).get("tree")
    for one in feed.versions(package):
        if wanted and one.tree == wanted and not one.deleted:
            pull(feed, package, one.version, dest)
            return dest
    return None


def copy_portable(source: Path, _cell: Cell, folder: Path) -> None:
    """From a folder that was pulled. Its export is there only if the package holds it."""
    shutil.copytree(source, folder / PACKAGE)
