"""The address of an Azure Artifacts feed: what `azure:URL` means."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from matrix.errors import UsageError

SCHEME = "azure:"

_FORMS = (
    "azure:https://dev.azure.com/ORG/PROJECT/FEED, or for a feed of the organization "
    "azure:https://dev.azure.com/ORG/_artifacts/feed/FEED"
)
_FEED_NAME = re.compile(r"[^\W_](?:[^\s@~;{}'+=,<>|/\\?:&$*\"#\[\]%]*[^\W_])?")
_MARKERS = (("_artifacts", "feed"), ("_feed",))
"""What precedes the feed's name: in the form that the browser shows, and in the short form."""


@dataclass(frozen=True, slots=True)
class Address:
    """A feed of a project, or of the whole organization (no project)."""

    service: str
    """The organization's URL, without a slash at its end; what the SDK and the tool are given."""
    project: str | None
    feed: str

    @property
    def name(self) -> str:
        """The one spelling under which this feed is known; the service ignores case."""
        scope = f"/{quote(self.project.lower())}" if self.project else "/_artifacts/feed"
        return f"{SCHEME}{self.service.lower()}{scope}/{quote(self.feed.lower())}"


def parse(url: str) -> Address:
    """Read `azure:URL` (the scheme may be missing) or say what is wrong with it."""
    parts = urlsplit(url.strip().removeprefix(SCHEME))
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _wrong(url, "it is not an http(s) address")
    if parts.username or parts.password:
        # The address is shown and stored everywhere: what it said must not be repeated here.
        raise UsageError(
            "the address of an Azure feed must not hold a user name or a password",
            hint="set AZURE_DEVOPS_EXT_PAT instead",
        )
    if parts.query or parts.fragment:
        raise _wrong(url, "it has a query or a fragment")
    segments = [unquote(segment) for segment in parts.path.split("/") if segment]
    base = f"{parts.scheme}://{parts.netloc}"
    if not parts.hostname.lower().endswith(".visualstudio.com"):
        if not segments:
            raise _wrong(url, "the organization is missing")
        base = f"{base}/{quote(segments.pop(0))}"
    project, feed = _scope(url, segments)
    if not is_safe(base):
        raise _wrong(url, "a token is only sent over https (http is for this machine itself)")
    return Address(base, project, _feed_name(url, feed))


def is_loopback(url: str) -> bool:
    """Whether a URL points at this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_safe(url: str) -> bool:
    """Whether a token may travel to a URL: https, or this machine."""
    return urlsplit(url).scheme == "https" or is_loopback(url)


def _scope(url: str, segments: list[str]) -> tuple[str | None, str]:
    """The project, if any, and the feed."""
    for marker in _MARKERS:
        for start in (0, 1):
            if tuple(segment.lower() for segment in segments[start:-1]) == marker:
                return (segments[0] if start else None), segments[-1]
    if len(segments) != 2 or any(segment.startswith("_") for segment in segments):
        raise _wrong(url, "it does not name a project and a feed")
    return segments[0], segments[1]


def _feed_name(url: str, feed: str) -> str:
    if "@" in feed:
        bare, _, view = feed.partition("@")
        raise UsageError(
            f"{feed} is a view, and views are read-only",
            hint=f"name the feed {bare}; what fills {view} is: "
            f"modelmill feed promote PACKAGE VERSION --view {view}",
        )
    if len(feed) > 64 or not _FEED_NAME.fullmatch(feed):
        raise _wrong(url, f"{feed!r} is not the name of a feed")
    return feed


def _wrong(url: str, why: str) -> UsageError:
    return UsageError(f"not the address of an Azure feed: {url}: {why}", hint=f"use {_FORMS}")


def package_page(feed: str, package: str, version: str) -> str | None:
    """The web page of a version, by the name of its feed; None: not a feed of Azure Artifacts."""
    if not feed.startswith(SCHEME):
        return None
    address = parse(feed)
    scope = f"/{quote(address.project)}" if address.project else ""
    where = f"{address.service}{scope}/_artifacts/feed/{quote(address.feed)}"
    return f"{where}/UPack/{quote(package)}/overview/{quote(version)}"
