"""Finds all problems of the host, the feed and the plan before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from feed.azure.artifacttool import ArtifactTool
from feed.azure.listing import Listing
from feed.azure.service import Service
from feed.azure.staging import work_folder
from feed.errors import FeedError, Rejected, Unauthorized, Unavailable
from feed.rules import STRICTEST, headroom_problems, in_lines

_AT_ONCE = 8
_WRITERS = ("contributor", "administrator")
_WORST = (Unauthorized, Unavailable)
"""The error for several problems has the first of these classes that one of them has."""


def check(
    service: Service,
    listing: Listing,
    tool: ArtifactTool,
    work: Path,
    plan: Sequence[tuple[str, str]],
) -> None:
    """Raise one error that names everything that is wrong."""
    problems: list[FeedError] = []
    if _gather(problems, lambda: _check_feed(service)):
        _gather(problems, lambda: _check_headroom(listing, plan))
    _gather(problems, lambda: _check_tool(tool, work))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        kind = next((k for k in _WORST if any(isinstance(p, k) for p in problems)), None)
        title = f"{service.address.name}: {len(problems)} problems:"
        raise (kind or type(problems[0]))(in_lines(title, [str(one) for one in problems]))


def _check_feed(service: Service) -> None:
    """Refuse a feed that is read-only, and a role that the service clearly names as reader."""
    address = service.address
    feed = service.read(lambda clients: clients.feeds.get_feed(address.feed, address.project))
    if feed.is_read_only:
        raise Rejected(f"{address.name} is read-only")

    def has_role(role: str) -> bool:
        feeds = service.read(
            lambda clients: clients.feeds.get_feeds(
                address.project, feed_role=role, include_urls=False
            )
        )
        return any(entry.id == feed.id for entry in feeds or ())

    if not any(map(has_role, _WRITERS)) and has_role("reader"):
        raise Unauthorized(
            f"{service.credentials.identity} may read {address.name}, but not publish to it",
            hint="ask an owner of the feed to give it the role Feed Publisher (Contributor)",
        )


def _check_headroom(listing: Listing, plan: Sequence[tuple[str, str]]) -> None:
    wanted = {package for package, _ in plan}
    if not wanted:
        return
    known = sorted(wanted & listing.packages().keys())
    with ThreadPoolExecutor(_AT_ONCE, "azure-preflight") as pool:
        taken = dict(zip(known, pool.map(listing.taken, known), strict=True))
    full = headroom_problems(STRICTEST, plan, lambda package: taken.get(package, ()))
    if full:
        raise Rejected("; ".join(full))


def _check_tool(tool: ArtifactTool, work: Path) -> None:
    with work_folder(work) as folder:
        tool.check(folder)


def _gather(problems: list[FeedError], check: Callable[[], None]) -> bool:
    """Run one check and keep what it finds."""
    try:
        check()
    except FeedError as problem:
        problems.append(problem)
        return False
    return True
