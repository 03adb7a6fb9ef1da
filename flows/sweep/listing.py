"""Lists the versions of a plan that the feed already has, once, before anything is built.

A listing is complete or an error; an error stops the sweep unless `--trust-state` is set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tenacity import (
    retry,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    wait_random_exponential,
)

from feed.errors import NotFound, Unavailable
from feed.interface import Feed, Published
from flows.output.activity import waiting_for
from flows.stop import Stop
from matrix.model import Plan, PlannedPackage
from state.reading import StateReader
from state.records import Seen

TRIES = 4
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Listing:
    """The versions in the feed, by the ids of the plan."""

    seen: tuple[Seen, ...] = ()
    """Versions of this stamp that the feed has and that are ours."""
    deleted: tuple[PlannedPackage, ...] = ()
    """Deleted versions of this stamp: they cannot be used again, so a new stamp is needed."""
    newest: Mapping[str, Published] = field(default_factory=dict)
    """With `every_stamp`: the newest version of each id, whatever its stamp."""


def check_present(feed: Feed, state: StateReader) -> None:
    """Refuse to begin a feed where the state knows one: a disk that is not mounted, or a folder
    that was moved, would be taken for an empty feed, and everything be published a second time."""
    if feed.is_new and state.knows_versions(feed.name):
        raise NotFound(
            f"the feed {feed.name} is missing: it had versions, but now nothing is there",
            hint="mount its disk or put its folder back, then run the same command again; "
            "for a new feed name another folder with --feed",
        )


def list_feed(feed: Feed, plan: Plan, *, every_stamp: bool, stop: Stop | None = None) -> Listing:
    """List the packages of the plan, several at once; an unavailable feed is asked again."""
    waiting_for(f"listing the feed {feed.name}")
    wanted: dict[str, list[PlannedPackage]] = defaultdict(list)
    for item in plan.packages():
        wanted[item.package].append(item)
    prefix = "0.0.0-" if every_stamp else f"0.0.0-{plan.stamp}-"
    waiting = (stop or Stop()).event

    @retry(
        sleep=sleep_using_event(waiting),
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(max=30),
        retry=retry_if_exception(lambda one: isinstance(one, Unavailable) and not one.lasts),
        reraise=True,
    )
    def listed(package: str) -> list[Published]:
        return list(feed.versions(package, prefix))

    seen: list[Seen] = []
    deleted: list[PlannedPackage] = []
    newest: dict[str, Published] = {}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="listing") as pool:
        for package, versions in zip(wanted, pool.map(listed, wanted), strict=True):
            by_version = {one.version: one for one in versions}
            for item in wanted[package]:
                there = by_version.get(item.version)
                if there is not None and there.deleted:
                    deleted.append(item)
                elif there is not None and there.tree is not None:
                    seen.append(Seen(item.id, there.tree, item.version, there.published_at))
            if every_stamp:
                newest.update(_newest(wanted[package], plan.stamp, versions))
    return Listing(tuple(seen), tuple(deleted), newest)


def there_all_the_same(feed: Feed, items: Iterable[PlannedPackage]) -> list[Seen]:
    """Which of these versions the feed has after all: whoever published them died before they
    could record it, or gave up before the feed showed them."""
    found = ((item, feed.find(item.package, item.version)) for item in items)
    return [
        Seen(item.id, one.tree, item.version, one.published_at)
        for item, one in found
        if one is not None and one.tree is not None and not one.deleted
    ]


def _newest(
    wanted: Iterable[PlannedPackage], stamp: str, versions: Iterable[Published]
) -> Iterator[tuple[str, Published]]:
    """The newest version of each package under any stamp.

    After `0.0.0-<stamp>` all versions of a cell have the same suffix. One suffix may end with
    another, so a version belongs to the longest suffix that fits.
    """
    endings = {item.version.removeprefix(f"0.0.0-{stamp}"): item.id for item in wanted}
    lengths = sorted({len(ending) for ending in endings}, reverse=True)
    found: dict[str, Published] = {}
    for one in versions:
        if one.tree is None or one.deleted:
            continue
        fits = (one.version[-length:] for length in lengths)
        owner = next((endings[ending] for ending in fits if ending in endings), None)
        if owner is None:
            continue
        best = found.get(owner)
        if best is None or _age(best) <= _age(one):
            found[owner] = one
    yield from found.items()


def _age(one: Published) -> tuple[float, str]:
    return (one.published_at.timestamp() if one.published_at else 0.0, one.version)
