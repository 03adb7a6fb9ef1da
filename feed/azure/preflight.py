"""Finds all problems of the host, the feed and the plan before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from feed.azure.artifacttool import ArtifactTool
from feed.azure.listing import Listing
from feed.azure.service import Service
from feed.azure.staging import work_folder
from feed.errors import FeedError, Rejected, Unauthorized, Unavailable
from feed.preflight import SHOWN, headroom_problems, plan_problems
from feed.rules import STRICTEST

_AT_ONCE = 8
_WRITERS = ("contributor", "administrator")
_WORST = (Unauthorized, Unavailable)
"""The error for several problems has the first of these classes that one of them has."""


class Preflight:
    """Checks one feed."""

    def __init__(self, service: Service, listing: Listing, tool: ArtifactTool, work: Path) -> None:
        self._service = service
        self._listing = listing
        self._tool = tool
        self._work = work

    def check(self, plan: Sequence[tuple[str, str]]) -> None:
        """Raise one error that names everything that is wrong."""
        problems: list[FeedError] = [Rejected(text) for text in plan_problems(STRICTEST, plan)]
        reachable = _gather(problems, self._feed)
        if reachable:
            _gather(problems, lambda: self._headroom(plan))
        _gather(problems, self._start_tool)
        if not problems:
            return
        kind = next((k for k in _WORST if any(isinstance(p, k) for p in problems)), None)
        lines = [str(problem) for problem in problems]
        if len(lines) == 1:
            raise problems[0]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        name = self._service.address.name
        text = "\n  ".join([f"{name}: {len(lines)} problems:", *lines[:SHOWN], *more])
        raise (kind or type(problems[0]))(text)

    def _feed(self) -> None:
        address = self._service.address
        found = self._service.read(
            lambda clients: clients.feeds.get_feed(address.feed, address.project)
        )
        if found.is_read_only:
            raise Rejected(f"{address.name} is read-only")
        self._writable(found)

    def _writable(self, feed: Any) -> None:
        """Refuse only a role that the service clearly names as reader."""
        if any(self._has_role(feed, role) for role in _WRITERS):
            return
        if self._has_role(feed, "reader"):
            raise Unauthorized(
                f"{self._service.credentials.identity} may read {self._service.address.name}, "
                "but not publish to it",
                hint="ask an owner of the feed to give it the role Feed Publisher (Contributor)",
            )

    def _has_role(self, feed: Any, role: str) -> bool:
        project = self._service.address.project
        feeds = self._service.read(
            lambda clients: clients.feeds.get_feeds(project, feed_role=role, include_urls=False)
        )
        return any(entry.id == feed.id for entry in feeds or ())

    def _headroom(self, plan: Sequence[tuple[str, str]]) -> None:
        wanted = {package for package, _ in plan}
        if not wanted:
            return
        known = sorted(wanted & self._listing.packages().keys())
        with ThreadPoolExecutor(_AT_ONCE, "azure-preflight") as pool:
            taken = dict(zip(known, pool.map(self._listing.taken, known), strict=True))
        full = headroom_problems(STRICTEST, plan, lambda package: taken.get(package, ()))
        if full:
            raise Rejected("; ".join(full))

    def _start_tool(self) -> None:
        with work_folder(self._work) as folder:
            self._tool.check(folder)


def _gather(problems: list[FeedError], check: Callable[[], None]) -> bool:
    """Run one check and keep what it finds."""
    try:
        check()
    except FeedError as problem:
        problems.append(problem)
        return False
    return True
