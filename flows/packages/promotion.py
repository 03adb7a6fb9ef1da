"""Promotion into a view, which demands a level of verification from each version."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feed.errors import NotFound, Rejected
from feed.index import INDEX_FILE
from feed.interface import Feed, Published
from flows.cli.settings import Settings
from flows.packages.crowning import check_champion, publish_proof
from flows.packages.reverify import evidence_file
from matrix.digest import BUILD_RECORD, MANIFEST
from matrix.errors import UsageError
from matrix.model import EXPORT
from workers.verify.ladder.levels import Demand

Json = Mapping[str, Any]


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
    demand, title = demand_of(settings, name), f"{package} {version}"
    if demand is not None or champions is not None:
        with tempfile.TemporaryDirectory() as folder:
            feed.fetch(package, version, Path(folder), (MANIFEST, BUILD_RECORD, INDEX_FILE))
            files = (Path(folder, file) for file in (MANIFEST, BUILD_RECORD, INDEX_FILE))
            manifest, record, index = map(_json, files)
        # Exports and indexes are not verified themselves, belong to no champion and may enter.
        # Whatever is neither these nor a cell was never verified.
        if manifest.get("kind") != EXPORT and (manifest or not index):
            subject = feed.find(package, version)
            if demand is not None:
                _check(settings, demand, record, subject, title, name)
            if champions is not None:
                champion = check_champion(settings, champions, manifest, title)
                if subject is not None:
                    publish_proof(settings, feed, subject, champion)
    feed.promote(package, version, name)
    return name


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


def _check(
    settings: Settings,
    demand: Demand,
    record: Json,
    subject: Published | None,
    title: str,
    view: str,
) -> None:
    """Raise `Rejected` with the reason unless a build record, or later evidence, is enough."""
    lacks = demand.lacks(record)
    if lacks and subject is not None and subject.tree:
        later = _json(evidence_file(settings, subject.tree))
        lacks = demand.lacks(later) if later else lacks
    if lacks:
        asked = demand.level + (" on the target's own provider" if demand.own else "")
        raise Rejected(
            f"{title} cannot enter {view}, which demands {asked}: {lacks}",
            hint=f"on a machine that can: modelmill verify {title}; "
            "or waive it in the catalog and build again",
        )


def _json(path: Path) -> Json:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
