"""The sweep index: published last, and again when a resumed sweep adds cells."""

from __future__ import annotations

from collections.abc import Iterable

from feed.errors import Conflict, NotFound
from feed.index import INDEX_FILE, IndexCell, SweepIndex
from feed.interface import Feed, Published
from feed.publisher import Publisher
from feed.selection import index_revisions, resolve_index
from flows.packages.run_records import statement_files, write_files
from flows.packages.signing import signature_check
from flows.settings.settings import Settings
from machine.files import temporary_folder
from matrix.cellid import parse
from matrix.digest import SIGNATURE, tree_digest
from matrix.model import Plan, is_export
from matrix.naming import INDEX, index_name
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


def with_listed(feed: Feed, plan: Plan, index: SweepIndex, settings: Settings) -> SweepIndex | None:
    """The index of a batch whose packages were compiled, perhaps where nothing else of it is
    known: with everything that its newest index lists. None: there is no index yet, and the sweep
    of the batch will publish one."""
    check = signature_check(settings, signs=True)
    try:
        listed = resolve_index(feed, plan.index_package, plan.stamp, signature=check).index.cells
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
    feed: Feed, publisher: Publisher, plan: Plan, settings: Settings, index: SweepIndex
) -> str:
    """Publish the index under the next free revision, unless the newest one says the same.

    Returns the version that holds it. Two sweeps that end at once settle by content.
    """
    package, taken = plan.index_package, 0
    with temporary_folder("modelmill-index-") as folder:
        content = write_files(folder, {INDEX_FILE: index.to_json()})
        tree = tree_digest(file.entry for file in content)
        for _attempt in range(_RACES):
            revisions = index_revisions(feed, package, plan.stamp)
            newest = max(revisions, default=0)
            if newest and _stands(feed, revisions[newest], tree, settings):
                return revisions[newest].version
            revision = max(newest, taken) + 1
            version = index_name(settings.package, plan.stamp, revision)[1]
            stated = statement_files(settings, INDEX, package, version, content, folder)
            told = f"index of {plan.stamp}"
            try:
                publisher.publish(
                    package, version, [*content, *stated], description_text=told, tree=tree
                )
            except Conflict:
                # Another sweep published that revision with other content, or it was deleted:
                # a deleted version is in no listing but cannot be used again.
                taken = revision
                continue
            return version
    text = f"the index of {plan.stamp} changes faster than it can be published"
    raise Conflict(text, hint="resume it when the other sweep has ended")


def _stands(feed: Feed, published: Published, tree: str, settings: Settings) -> bool:
    """Whether an index need not be published again: it says the same, signed for those who sign."""
    if published.deleted or published.tree != tree:
        return False
    if not settings.sign_key:
        return True
    files = feed.files(published.package, published.version)
    return any(entry.path == SIGNATURE for entry in files)
