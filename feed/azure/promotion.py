"""Promotion: adds a version to a view. It cannot be undone."""

from __future__ import annotations

import difflib

from feed.azure import sdk
from feed.azure.listing import Listing
from feed.azure.service import Service
from feed.errors import NotFound, OutcomeUnknown, Rejected, Unavailable
from feed.interface import Published
from feed.rules import view_problem

FINAL = "a promotion cannot be undone: the version stays in the view until it is deleted"


class Promotion:
    """Promotes the versions of one feed."""

    def __init__(self, service: Service, listing: Listing) -> None:
        self._service = service
        self._listing = listing

    def view(self, view: str) -> str:
        """The view as the feed spells it."""
        if problem := view_problem(view):
            raise Rejected(problem)
        address = self._service.address
        views = self._service.read(
            lambda clients: clients.feeds.get_feed_views(address.feed, address.project)
        )
        names = {entry.name.lower(): entry.name for entry in views or ()}
        if view.lower() in names:
            return str(names[view.lower()])
        near = difflib.get_close_matches(view.lower(), names, 1)
        raise NotFound(
            f"{address.name} has no view {view}",
            hint=f"did you mean {names[near[0]]}?"
            if near
            else f"it has {', '.join(names.values())}",
        )

    def promote(self, package: str, version: str, view: str) -> None:
        """Ask once; after a lost reply look at the views instead of asking again."""
        name = self.view(view)
        found = self._listing.find(package, version)
        if found is None or found.deleted:
            raise NotFound(f"{package} {version} is not in {self._service.address.name}")
        if name in self._entry(package, version).views:
            return
        try:
            self._service.once(lambda clients: self._patch(clients, package, version, name))
        except Unavailable as lost:
            if name in self._entry(package, version).views:
                return
            raise OutcomeUnknown(
                f"whether {package} {version} is in view {name} is not known: {lost.message}",
                hint=f"before you repeat it: modelmill feed show {package} {version}; {FINAL}",
            ) from lost

    def _patch(self, clients: sdk.Clients, package: str, version: str, view: str) -> None:
        names = sdk.load()
        address = self._service.address
        add = names.JsonPatchOperation(op="add", path="/views/-", value=view)
        details = names.PackageVersionDetails(views=add)
        clients.upack.update_package_version(
            details, address.feed, package, version, address.project
        )

    def _entry(self, package: str, version: str) -> Published:
        """The version with its views; the side that knows views may not know it yet."""
        listed = self._listing.versions(package, version)
        match = next((entry for entry in listed if entry.version == version), None)
        return match or Published(package, version, None, "")
