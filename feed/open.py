"""From what a user types to a feed: `dir:PATH`, a plain path, or one of an entry point, as
`azure:URL` is."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from feed.directory import DirectoryFeed
from feed.errors import FeedError
from feed.interface import Feed
from matrix.errors import UsageError

GROUP = "modelmill.feeds"
"""Entry points of feeds that are no folder: name = scheme -> factory(rest: str)."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
"""At least two letters: `C:\\feed` is a path."""


def open_feed(spec: str, *, base: Path) -> Feed:
    """The feed of a spec; relative paths start at `base`."""
    spec = spec.strip()
    found = _SCHEME.fullmatch(spec)
    scheme, rest = (found.group(1).lower(), found.group(2)) if found else ("dir", spec)
    if not rest:
        raise UsageError(f"feed {spec!r} has no path", hint="for example dir:./feed")
    if scheme == "dir":
        return DirectoryFeed(base / Path(rest).expanduser())
    return _plugin(scheme, spec)(rest)


def _plugin(scheme: str, spec: str) -> Callable[[str], Feed]:
    known = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in known:
        names = ", ".join(f"{name}:" for name in sorted({"dir", *known}))
        raise UsageError(
            f"feed {spec!r}: unknown kind {scheme}:",
            hint=f"known: {names}; a folder with a colon in its name is dir:PATH",
        )
    try:
        return cast("Callable[[str], Feed]", known[scheme].load())
    except (ImportError, AttributeError) as error:
        raise FeedError(f"the feed plug-in {scheme}: does not load: {error}") from error
