"""A whole stamp at once: find the newest sweep index, and pull the cells it lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from feed.checked import shown
from feed.errors import Corrupt, FeedError, NotFound, UnsafePath
from feed.index import INDEX_FILE, IndexCell, SweepIndex
from feed.interface import Feed, Published
from feed.reader import Pulled, pull
from feed.verdict import CheckSignature
from machine.files import temporary_folder
from matrix.cellid import parse
from matrix.errors import NothingSelected, UsageError
from matrix.globs import matches
from matrix.model import Profile
from matrix.naming import INDEX
from matrix.slugs import slug


@dataclass(frozen=True, slots=True)
class FoundIndex:
    """A sweep index as it is in the feed."""

    published: Published
    index: SweepIndex


def index_revisions(feed: Feed, package: str, stamp: str) -> dict[int, Published]:
    """Every revision of a stamp's index, deleted ones included: their numbers cannot be reused."""
    base = f"0.0.0-{slug(stamp)}"
    pattern = re.compile(rf"{re.escape(base)}(?:-{INDEX})?(?:-r([1-9][0-9]*))?")
    # Narrow prefixes: with one fixed package name, all cells of the stamp are in this package too.
    listed = [*feed.versions(package, f"{base}-{INDEX}"), *feed.versions(package, f"{base}-r")]
    first = feed.find(package, base)
    found: dict[int, Published] = {}
    for published in [*listed, *([first] if first else [])]:
        match = pattern.fullmatch(published.version)
        if match:
            found[int(match.group(1) or 1)] = published
    return found


def resolve_index(
    feed: Feed, index_package: str, stamp: str, *, signature: CheckSignature | None = None
) -> FoundIndex:
    """The newest index of a stamp."""
    revisions = index_revisions(feed, index_package, stamp)
    live = [revision for revision, published in revisions.items() if not published.deleted]
    if not live:
        raise NotFound(
            f"no index of stamp {stamp} in {feed.name} (package {index_package})",
            hint=f"see: modelmill feed ls {index_package}",
        )
    published = revisions[max(live)]
    title = f"{index_package} {published.version}"
    with temporary_folder("modelmill-index-") as folder:
        dest = folder / "index"
        version = published.version
        pulled = pull(feed, index_package, version, dest, (INDEX_FILE,), signature=signature)
        if pulled.kind not in {INDEX, ""}:
            raise Corrupt(f"{title} is not an index: it says that it is a {pulled.kind}")
        data = (dest / INDEX_FILE).read_bytes()
    index = SweepIndex.from_json(data, f"{title} {INDEX_FILE}")
    if slug(index.stamp) != slug(stamp):
        raise Corrupt(f"{title} is the index of another stamp: {shown(index.stamp)}")
    return FoundIndex(published, index)


def select(
    index: SweepIndex,
    *,
    targets: Sequence[str] = ("*",),
    models: Sequence[str] = ("*",),
    within: bool = False,
) -> list[IndexCell]:
    """The cells that can be pulled and match; a model matches by id or as MODEL:TASK.

    `within`: a context group also matches by the models that it holds.
    """
    return [
        cell
        for cell in index.cells
        if cell.available
        and matches(cell.target, targets)
        and any(matches(name, models) for name in _names(cell, within=within))
    ]


def _names(cell: IndexCell, *, within: bool) -> Iterator[str]:
    yield from (cell.model, f"{cell.model}:{cell.task}")
    for member in map(parse, cell.members if within else ()):
        yield from (member.model, f"{member.model}:{member.task}")


def best_for(profile: Profile, cells: Sequence[IndexCell]) -> list[list[IndexCell]]:
    """For each cell of the profile's target: its package compiled for the profile, where there is
    one, and then the portable one. A context group stands for the cells that it holds."""
    found: dict[str, list[IndexCell]] = {}
    held = {
        one for cell in cells if parse(cell.id).profile == profile.label for one in cell.members
    }
    for cell in cells:
        if cell.id in held:
            continue
        named = parse(cell.id)
        if named.target == profile.target and named.profile in {None, profile.label}:
            portable = str(replace(named, profile=None))
            found.setdefault(portable, []).append(cell)
    for same in found.values():
        same.sort(key=lambda cell: parse(cell.id).profile is None)
    return list(found.values())


def version_for(feed: Feed, package: str, version: str, profile: Profile) -> str:
    """The version that was compiled for the profile from a portable one; without it, that one."""
    if f"-{slug(profile.target)}-" not in version:
        raise UsageError(
            f"profile {profile.label} is for {profile.target}, "
            f"and {version} is a version for another target",
            hint=f"see: modelmill feed ls {package}",
        )
    compiled = f"{version}-{slug(profile.label)}"
    found = feed.find(package, compiled)
    return compiled if found and not found.deleted else version


def pull_selection(
    feed: Feed,
    index_package: str,
    stamp: str,
    dest: Path,
    *,
    targets: Sequence[str] = ("*",),
    models: Sequence[str] = ("*",),
    profile: Profile | None = None,
    patterns: Sequence[str] = ("*",),
    force: bool = False,
    signature: CheckSignature | None = None,
) -> list[tuple[IndexCell, Pulled | FeedError]]:
    """Pull every matching cell of a stamp to `dest/<package>/<target>`, or say why it is not there.

    With a profile, the compiled package of a cell where one exists and the portable one otherwise.
    A version that is deleted or damaged costs no other cell. Running it again transfers only
    what is missing: a folder that is complete is left alone.
    """
    found = resolve_index(feed, index_package, stamp, signature=signature)
    cells = select(found.index, targets=targets, models=models, within=profile is not None)
    choices = best_for(profile, cells) if profile else [[cell] for cell in cells]
    if not choices:
        wanted = f" and is for {profile.target}" if profile and cells else ""
        raise NothingSelected(
            f"no published cell of stamp {stamp} matches{wanted}",
            hint=f"give other globs to --target and --model: the index lists "
            f"{len(found.index.cells)} cells",
        )

    folders = found.index.folders()

    def fetch(cell: IndexCell) -> Pulled:
        check_tree(feed, cell)
        return pull(
            feed,
            cell.package,
            cell.version,
            dest / folders[cell.id],
            patterns,
            force=force,
            signature=signature,
        )

    return [_first(choice, fetch) for choice in choices]


def _first(
    cells: Sequence[IndexCell], fetch: Callable[[IndexCell], Pulled]
) -> tuple[IndexCell, Pulled | FeedError]:
    """The first of the cells that the feed still has. A damaged one is lost, not passed over."""
    for cell in cells:
        try:
            return cell, fetch(cell)
        except NotFound as error:
            lost: tuple[IndexCell, FeedError] = cell, error
        except (Corrupt, UnsafePath) as error:
            return cell, error
    return lost


def check_tree(feed: Feed, cell: IndexCell) -> None:
    """Check that index and feed name the same content, before anything is transferred."""
    published = feed.find(cell.package, cell.version)
    if published and not published.deleted and published.tree != cell.tree:
        raise Corrupt(
            f"{cell.id}: the index names tree {cell.tree}, "
            f"{cell.package} {cell.version} has {published.tree}"
        )
