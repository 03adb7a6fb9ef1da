"""Promotion: adds a version to a view. It cannot be undone."""

from __future__ import annotations

import difflib

from feed.azure import sdk
from feed.azure.listing import Listing
from feed.azure.service import Service
from feed.errors import NotFound, OutcomeUnknown, Rejected, Unavailable
from feed.rules import view_problem

FINAL = "a promotion cannot be undone: the version stays in the view until it is deleted"


def find_view(service: Service, view: str) -> str:
    """The view as the feed spells it."""
    if problem := view_problem(view):
        raise Rejected(problem)
    address = service.address
    views = service.read(
        lambda clients: clients.feeds.get_feed_views(address.feed, address.project)
    )
    names = {entry.name.lower(): entry.name for entry in views or ()}
    if view.lower() in names:
        return str(names[view.lower()])
    near = difflib.get_close_matches(view.lower(), names, 1)
    raise NotFound(
        f"{address.name} has no view {view}",
        hint=f"did you mean {names[near[0]]}?" if near else f"it has {', '.join(names.values())}",
    )


def promote(service: Service, listing: Listing, package: str, version: str, view: str) -> None:
    """Ask once; after a lost reply look at the views instead of asking again."""
    address = service.address
    name = find_view(service, view)
    found = listing.find(package, version)
    if found is None or found.deleted:
        raise NotFound(f"{package} {version} is not in {address.name}")

    def promoted() -> bool:
        # The side that knows views may not know the version yet.
        listed = listing.versions(package, version)
        return any(entry.version == version and name in entry.views for entry in listed)

    def patch(clients: sdk.Clients) -> None:
        names = sdk.load()
        add = names.JsonPatchOperation(op="add", path="/views/-", value=name)
        clients.upack.update_package_version(
            names.PackageVersionDetails(views=add), address.feed, package, version, address.project
        )

    if promoted():
        return
    try:
        service.once(patch)
    except Unavailable as lost:
        if promoted():
            return
        raise OutcomeUnknown(
            f"whether {package} {version} is in view {name} is not known: {lost.message}",
            hint=f"before you repeat it: modelmill feed show {package} {version}; {FINAL}",
        ) from lost
