"""Promotion into a view, which demands a level of verification from each version."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feed.errors import NotFound, Rejected
from feed.index import INDEX_FILE
from feed.interface import Feed
from flows.cli.settings import Settings
from flows.packages.crowning import check_champion, publish_proof
from flows.packages.reverify import evidence_file
from matrix.digest import BUILD_RECORD, MANIFEST
from matrix.errors import UsageError
from matrix.model import EXPORT
from workers.verify.ladder.levels import Demand


def demand_of(settings: Settings, view: str) -> Demand | None:
    """What a view demands; None: nothing. Feeds ignore the case of a view's name."""
    for text in settings.demand:
        name, _, level = text.partition("=")
        if name.strip().casefold() == view.casefold():
            return Demand.parse(level)
    return None


def promote(
    settings: Settings,
    feed: Feed,
    package: str,
    version: str,
    view: str,
    champions: Path | None = None,
) -> str:
    """Promote a version into a view if it may enter; returns the view as the feed spells it.

    `champions`: a file of them, one of which it must be the build of; its evidence is published.
    """
    name = feed.view(view)
    _check_demands(settings, feed, name)
    _check(settings, feed, package, version, name)
    if champions is not None:
        _check_champion(settings, feed, package, version, champions)
    feed.promote(package, version, name)
    return name


def _check_champion(
    settings: Settings, feed: Feed, package: str, version: str, champions: Path
) -> None:
    """Raise `Rejected` unless the version is the build of a champion; publish its evidence.

    Exports and indexes belong to no champion.
    """
    with tempfile.TemporaryDirectory() as folder:
        feed.fetch(package, version, Path(folder), (MANIFEST, INDEX_FILE))
        manifest, index = _json(Path(folder) / MANIFEST), _json(Path(folder) / INDEX_FILE)
    if manifest.get("kind") == EXPORT or (index and not manifest):
        return
    champion = check_champion(settings, champions, manifest, f"{package} {version}")
    if subject := feed.find(package, version):
        publish_proof(settings, feed, subject, champion)


def _check_demands(settings: Settings, feed: Feed, view: str) -> None:
    """Refuse a demand that can never hold: in place of the one that was meant, nothing is asked."""
    origin = settings.origin("demand")
    for text in settings.demand if origin != "default" else ():
        named = text.partition("=")[0].strip()
        if named.casefold() == view.casefold():
            continue
        if origin.startswith("flag"):
            raise UsageError(
                f"--demand {text} is not about {view}, the view at hand",
                hint=f"--demand {view}={text.partition('=')[2]}",
            )
        try:
            feed.view(named)
        except (NotFound, Rejected) as error:
            raise UsageError(f"demand {text}: {error.message}", hint=error.hint) from error


def _check(settings: Settings, feed: Feed, package: str, version: str, view: str) -> None:
    """Raise `Rejected` with the reason unless the version may enter the view.

    Exports and indexes are not verified themselves and may always enter. Whatever is neither these
    nor a cell was never verified.
    """
    demand = demand_of(settings, view)
    if demand is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        feed.fetch(package, version, Path(folder), (MANIFEST, BUILD_RECORD, INDEX_FILE))
        manifest, record = _json(Path(folder) / MANIFEST), _json(Path(folder) / BUILD_RECORD)
        index = _json(Path(folder) / INDEX_FILE)
    if manifest.get("kind") == EXPORT or (index and not manifest):
        return
    lacks = demand.lacks(record)
    published = feed.find(package, version)
    if lacks and published is not None and published.tree:
        later = _json(evidence_file(settings, published.tree))
        lacks = demand.lacks(later) if later else lacks
    if lacks:
        asked = demand.level + (" on the target's own provider" if demand.own else "")
        raise Rejected(
            f"{package} {version} cannot enter {view}, which demands {asked}: {lacks}",
            hint=f"on a machine that can: modelmill verify {package} {version}; "
            "or waive it in the catalog and build again",
        )


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
