"""The sweep index: published last, and again when a resumed sweep adds cells."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from pathlib import Path

from feed.errors import Conflict, NotFound
from feed.index import INDEX_FILE, IndexCell, SweepIndex
from feed.interface import Feed, LocalFile
from feed.publisher import Publisher
from feed.selection import index_revisions, resolve_index
from matrix.cellid import parse
from matrix.digest import FileEntry, tree_digest
from matrix.model import Plan, is_export
from matrix.naming import index_name
from state.records import Outcome

_RACES = 5


def index_of(stamp: str, outcomes: Iterable[Outcome]) -> SweepIndex:
    """The cells of the batch now. An unchanged cell is listed with its existing version."""
    cells = []
    for one in outcomes:
        if is_export(one.cell):
            continue
        detail, named = one.detail or {}, parse(one.cell)
        cells.append(
            IndexCell(
                id=one.cell,
                model=named.model,
                task=named.task,
                target=one.target,
                precision=one.precision,
                status=one.status,
                package=one.package,
                version=str(detail.get("same_as", one.version)),
                tree=one.tree,
                members=tuple(map(str, detail.get("members", ()))),
            )
        )
    return SweepIndex(stamp, tuple(cells))


def with_listed(feed: Feed, plan: Plan, index: SweepIndex) -> SweepIndex | None:
    """The index of a batch whose packages were compiled, perhaps where nothing else of it is
    known: with everything that its newest index lists. None: there is no index yet, and the sweep
    of the batch will publish one."""
    try:
        listed = resolve_index(feed, plan.index_package, plan.stamp).index.cells
    except NotFound:
        return None
    ours = {cell.id for cell in index.cells}
    return SweepIndex(index.stamp, (*index.cells, *(one for one in listed if one.id not in ours)))


def index_line(plan: Plan, template: str, version: str, failed: int) -> str:
    """Where the index is. Versions never change, so later repairs go into a new revision."""
    line = f"index: {plan.index_package} {version}"
    if not failed:
        return line
    first = index_name(template, plan.stamp)[1]
    revision = int(version.removeprefix(f"{first}-r")) if version != first else 1
    following = index_name(template, plan.stamp, revision + 1)[1]
    return f"{line}; it lists what failed too, and once that is repaired {following} follows"


def publish_index(
    feed: Feed, publisher: Publisher, plan: Plan, template: str, index: SweepIndex
) -> str:
    """Publish the index under the next free revision, unless the newest one says the same.

    Returns the version that holds it. Two sweeps that end at once settle by content.
    """
    data = index.to_json()
    entry = FileEntry(INDEX_FILE, len(data), hashlib.sha256(data).hexdigest())
    tree = tree_digest([entry])
    taken = 0
    for _attempt in range(_RACES):
        revisions = index_revisions(feed, plan.index_package, plan.stamp)
        newest = max(revisions, default=0)
        if newest and revisions[newest].tree == tree and not revisions[newest].deleted:
            return revisions[newest].version
        revision = max(newest, taken) + 1
        version = index_name(template, plan.stamp, revision)[1]
        with tempfile.TemporaryDirectory(prefix="modelmill-index-") as folder:
            path = Path(folder) / INDEX_FILE
            path.write_bytes(data)
            try:
                told, content = f"index of {plan.stamp}", [LocalFile(entry, path)]
                publisher.publish(
                    plan.index_package, version, content, description_text=told, tree=tree
                )
            except Conflict:
                # Another sweep published that revision with other content, or it was deleted:
                # a deleted version is in no listing but cannot be used again.
                taken = revision
                continue
        return version
    text = f"the index of {plan.stamp} changes faster than it can be published"
    raise Conflict(text, hint="run modelmill resume when the other sweep has ended")
