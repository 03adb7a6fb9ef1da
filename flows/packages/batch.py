"""The published packages of a batch, as its index lists them and the settings select them."""

from __future__ import annotations

from collections.abc import Callable

from feed.index import IndexCell
from feed.interface import Feed
from feed.selection import resolve_index
from flows.packages.signing import signature_check
from flows.plan.recorded import PlannedCells
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from matrix.errors import NothingSelected
from matrix.globs import matches
from matrix.naming import index_name
from matrix.slugs import slug
from state.records import SweepInfo


def published_cells(
    settings: Settings, feed: Feed, stamp: str, what: str, wanted: Callable[[IndexCell], bool]
) -> list[IndexCell]:
    """The cells of a batch that the feed has, selected and wanted. Raises `NothingSelected`.

    `what`: is wanted, for the message.
    """
    settings = known_settings(settings, slug(stamp))
    signature = signature_check(settings, signs=True)
    index = resolve_index(
        feed, index_name(settings.package, stamp)[0], stamp, signature=signature
    ).index
    found = [
        one for one in index.cells if one.available and _selected(one, settings) and wanted(one)
    ]
    if not found:
        hint = f"the index lists {len(index.cells)} cells; give other globs"
        text = f"no published cell of stamp {stamp} matches and is {what}"
        raise NothingSelected(text, hint=hint)
    return found


def _selected(one: IndexCell, settings: Settings) -> bool:
    names = (one.model, f"{one.model}:{one.task}")
    target = one.target.partition("+")[0]
    return (
        (not settings.target or matches(target, settings.target))
        and (not settings.model or any(matches(name, settings.model) for name in names))
        and (not settings.only or matches(one.id, settings.only))
        and not (settings.skip and matches(one.id, settings.skip))
    )


def known_settings(settings: Settings, stamp: str) -> Settings:
    """With the package names of a sweep that the state knows."""
    known = known_sweep(settings, stamp, None)
    package = known[0].settings.get("package") if known else None
    return settings.replaced({"package": package}, f"sweep {stamp}") if package else settings


def known_sweep(
    settings: Settings, stamp: str, feed: str | None
) -> tuple[SweepInfo, PlannedCells] | None:
    """A sweep of the state, if it knows it."""
    work = Workspace(settings)
    if work.has_state():
        with work.read_state() as state:
            if info := state.find_sweep(stamp, feed):
                return info, PlannedCells.of(state, info.id)
    return None
