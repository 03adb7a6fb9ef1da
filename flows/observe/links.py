"""Where a browser finds what a sweep has made."""

from __future__ import annotations

from urllib.parse import quote

from feed.azure.address import SCHEME, parse


def package_page(feed: str, package: str, version: str) -> str | None:
    """The page of a version, by the name of its feed; None: this feed has no pages."""
    if not feed.startswith(SCHEME):
        return None
    address = parse(feed)
    scope = f"/{quote(address.project)}" if address.project else ""
    where = f"{address.service}{scope}/_artifacts/feed/{quote(address.feed)}"
    return f"{where}/UPack/{quote(package)}/overview/{quote(version)}"
