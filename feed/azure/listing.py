"""Listing: complete, or an error.

Two sides of the service know versions. The packages host lists by name, at once and live
versions only; the feeds host needs the package's GUID, adds dates, views and deleted versions
(which stay taken for ever), and may lag behind. A listing is both together: three requests for
a package, however many versions it has; two once its GUID is known; and one for each version that
only the feeds host shows as live, because it may have been deleted since.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from typing import Any

from feed.azure import sdk
from feed.azure.service import Service
from feed.azure.wire import PackageAbsent
from feed.errors import NotFound, OutcomeUnknown, Rejected, Unavailable
from feed.interface import Published
from feed.rules import view_problem
from matrix.nearest import hint

PAGE = 1000
"""The service cuts at this many packages without any mark."""

FINAL = "a promotion cannot be undone: the version stays in the view until it is deleted"
_PROTOCOL = "upack"
_PASSES, _PAGES = 30, 500
"""So many attempts of so many pages a listing of all packages takes at most."""
AT_ONCE = 8
"""How many requests are made at the same time."""


class Listing:
    """The packages and versions of one feed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._feed = service.address.feed
        self._project = service.address.project
        self._ids: dict[str, str] = {}

    def packages(self) -> Iterator[str]:
        """Every universal package of the feed."""
        entries = [entry for entry in self._entries() if _is_upack(entry)]
        self._ids.update({entry.normalized_name: entry.id for entry in entries})
        return iter(sorted(entry.normalized_name for entry in entries))

    def versions(self, package: str, prefix: str = "") -> Iterator[Published]:
        """Every version of exactly this package, deleted ones too."""
        names = {v: text for v, text in self._by_name(package).items() if v.startswith(prefix)}
        listed = (entry for entry in self._by_id(package) if entry.version.startswith(prefix))
        known = {version: Published(package, version, text) for version, text in names.items()}
        known.update({entry.version: entry for entry in listed})
        # Published a moment ago, or deleted a moment ago.
        doubtful = [v for v, entry in known.items() if v not in names and not entry.deleted]
        with ThreadPoolExecutor(AT_ONCE, "azure-listing") as pool:
            asked = pool.map(lambda version: self.find(package, version), doubtful)
            for version, found in zip(doubtful, asked, strict=True):
                known[version] = found or replace(known[version], deleted=True)
        return iter([known[version] for version in sorted(known)])

    def taken(self, package: str) -> set[str]:
        """The versions that exist or existed, in one request once the GUID is known."""
        return {entry.version for entry in self._by_id(package)}

    def find(self, package: str, version: str) -> Published | None:
        """One version, from the side that is always up to date; also a deleted one, marked so."""
        try:
            meta = self.metadata(package, version)
        except PackageAbsent:
            return self._deleted(package, version)
        return Published(package, version, meta.description or "")

    def metadata(self, package: str, version: str) -> Any:
        """The registration of a live version: manifest id, size, description."""
        return self._service.read(
            # This intent is the tool's own; a plain read might count as a download.
            lambda clients: clients.packaging.get_package_metadata(
                self._feed, package, version, self._project, intent="FetchMetadataOnly"
            )
        )

    def view(self, name: str) -> str:
        """A view as the feed spells it."""
        if problem := view_problem(name):
            raise Rejected(problem)
        views = self._service.read(
            lambda clients: clients.feeds.get_feed_views(self._feed, self._project)
        )
        names = {entry.name.lower(): str(entry.name) for entry in views or ()}
        if name.lower() in names:
            return names[name.lower()]
        raise NotFound(
            f"{self._service.address.name} has no view {name}", hint=hint(name, names.values())
        )

    def promote(self, package: str, version: str, view: str) -> None:
        """Ask once; after a lost reply look at the views instead of asking again."""
        name = self.view(view)
        self.live(package, version)

        def promoted() -> bool:
            # The side that knows views may not know the version yet.
            listed = self.versions(package, version)
            return any(entry.version == version and name in entry.views for entry in listed)

        def patch(clients: sdk.Clients) -> None:
            from azure.devops.v7_1.upack_api import (
                models,
            )  # loaded by the call that this is part of

            add = models.JsonPatchOperation(op="add", path="/views/-", value=name)
            details = models.PackageVersionDetails(views=add)
            clients.upack.update_package_version(
                details, self._feed, package, version, self._project
            )

        if promoted():
            return
        try:
            self._service.once(patch)
        except Unavailable as lost:
            if promoted():
                return
            raise OutcomeUnknown(
                f"whether {package} {version} is in view {name} is not known: {lost.message}",
                hint=f"before you repeat it: modelmill feed show {package} {version}; {FINAL}",
            ) from lost

    def live(self, package: str, version: str) -> Published:
        """A version that was not deleted. Raises `NotFound`."""
        found = self.find(package, version)
        if found is None or found.deleted:
            raise NotFound(f"{package} {version} is not in {self._service.address.name}")
        return found

    def _deleted(self, package: str, version: str) -> Published | None:
        try:
            found = self._service.read(
                lambda clients: clients.upack.get_package_version(
                    self._feed, package, version, self._project, show_deleted=True
                )
            )
        except PackageAbsent:
            return None
        gone = found.deleted_date or found.permanently_deleted_date
        if gone is None:
            raise Unavailable(
                f"{package} {version} is neither live nor deleted: the feed contradicts itself"
            )
        return Published(package, version, deleted=True)

    def _by_name(self, package: str) -> dict[str, str]:
        try:
            answer = self._service.read(
                lambda clients: clients.packaging.get_package_versions_metadata(
                    self._feed, package, self._project
                )
            )
        except PackageAbsent:
            return {}
        if answer is None or answer.value is None:
            raise Unavailable(f"the versions of {package} were returned without a list")
        return {entry.version: entry.description or "" for entry in answer.value}

    def _by_id(self, package: str) -> Iterator[Published]:
        guid = self._guid(package)
        if guid is None:
            return
        try:
            found = self._service.read(
                lambda clients: clients.feeds.get_package_versions(
                    self._feed, guid, self._project, include_urls=False
                )
            )
        except PackageAbsent:
            self._ids.pop(package, None)
            return
        for entry in found or ():
            yield Published(
                package,
                entry.normalized_version or entry.version,
                entry.description or "",
                published_at=entry.publish_date and entry.publish_date.astimezone(UTC),
                views=tuple(view.name for view in entry.views or () if view.type != "implicit"),
                deleted=bool(entry.is_deleted or entry.deleted_date),
            )

    def _guid(self, package: str) -> str | None:
        """The package's GUID; None: the feeds host does not know it (yet)."""
        if known := self._ids.get(package):
            return known
        for entry in self._entries(query=package):
            # The query finds parts of names, and other kinds of packages share them.
            if _is_upack(entry) and entry.normalized_name == package:
                self._ids[package] = entry.id
                return str(entry.id)
        return None

    def _entries(self, query: str | None = None) -> Iterator[Any]:
        """Every package once; complete, or an error at the end.

        The service promises no order. In a pass in which each page starts with the last entry of
        the one before, nothing has moved, so nothing was missed. Otherwise passes are repeated
        until one finds nothing new and as many packages are known as there are places. A pass ends
        where a page reaches no further than the one before: a short page alone proves nothing,
        because the service may cut lower than we ask.
        """
        seen: set[str] = set()
        for _ in range(_PASSES):
            before, count, last, steady, ended = len(seen), 0, None, True, False
            for _page in range(_PAGES):
                start = max(count - 1, 0)
                page = self._page(start, query)
                steady = steady and (last is None or (bool(page) and page[0].id == last))
                for entry in page:
                    if entry.id not in seen:
                        seen.add(entry.id)
                        yield entry
                if ended := start + len(page) <= count:
                    break
                count, last = start + len(page), page[-1].id
            if ended and (steady or len(seen) == before >= count):
                return
            if not ended:
                break
        raise Unavailable(
            f"the packages of {self._service.address.name} change faster than they can be listed",
            hint="run the same command again when others publish less to this feed",
        )

    def _page(self, skip: int, query: str | None = None) -> list[Any]:
        page: list[Any] | None = self._service.read(
            lambda clients: clients.feeds.get_packages(
                self._feed,
                self._project,
                protocol_type=_PROTOCOL,
                package_name_query=query,
                include_urls=False,
                include_deleted=True,
                top=PAGE,
                skip=skip or None,
            )
        )
        if page is None:
            raise Unavailable(f"the packages of {self._feed} were returned without a list")
        return page


def _is_upack(entry: Any) -> bool:
    return str(entry.protocol_type or "").lower() == _PROTOCOL
