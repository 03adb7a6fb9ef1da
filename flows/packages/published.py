"""Reading published packages: what one says about itself, what compiled cells are made from, and
the packages of a batch, as its index lists them and the settings select them.

Whatever is read here was checked as a whole (`feed.verdict`): its bytes, its name, its signature if
a key is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feed.attestation import parse, recipe_in
from feed.errors import Corrupt, FeedError, NotFound, Outage, Unauthorized, Unavailable
from feed.index import IndexCell
from feed.interface import Feed
from feed.reader import pull
from feed.selection import resolve_index
from feed.verdict import CheckSignature
from feed.verify import verify_folder
from flows.packages.signing import signature_check
from flows.plan.recorded import PlannedCells
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.files import read_json
from matrix.digest import MANIFEST, PROVENANCE
from matrix.errors import Exit, MillError, NothingSelected, UsageError
from matrix.globs import matches
from matrix.manifest import checked_manifest
from matrix.model import EXPORT, Cell
from matrix.naming import index_name
from matrix.slugs import slug
from matrix.status import FailureClass
from state.records import SweepInfo
from workers.build.origin import FETCH, PACKAGE
from workers.errors import BuildFailed

Json = Mapping[str, Any]


class Refused(MillError):
    """A package folder is not what it states to be."""

    exit_code = Exit.CELLS_FAILED


@dataclass(frozen=True, slots=True)
class Original:
    """What a package says about itself: its manifest, and the recipe that it was made by."""

    title: str
    manifest: Json
    recipe: Json
    stamp: str
    """Of the sweep that made it."""
    tree: str
    signed: bool = False
    """Whether the statement with the recipe is signed with the key that was given."""

    @classmethod
    def read(cls, title: str, folder: Path, tree: str, *, signed: bool = False) -> Original:
        """From the manifest and the provenance in a folder."""
        try:
            manifest = checked_manifest(read_json(folder / MANIFEST))
            stated = parse((folder / PROVENANCE).read_bytes())
            made = stated["predicate"]["buildDefinition"]["internalParameters"]
            return cls(title, manifest, recipe_in(stated), str(made["stamp"]), tree, signed)
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise Corrupt(f"{title}: {error}") from error


def published_original(
    feed: Feed,
    package: str,
    version: str,
    folder: Path,
    signature: CheckSignature | None,
    files: Sequence[str] = (MANIFEST, PROVENANCE),
) -> Original:
    """From the feed, with a folder to work in. `files`: what else of it is read."""
    pulled = pull(feed, package, version, folder, files, signature=signature)
    if not (folder / PROVENANCE).is_file():
        text = f"{package} {version} has no {PROVENANCE}: nothing states how it was made"
        hint = "only packages with provenance can be built again or compiled"
        raise NotFound(text, hint=hint)
    return Original.read(f"{package} {version}", folder, pulled.tree, signed=pulled.signed)


def check_folder(settings: Settings, folder: Path) -> None:
    """Refuse a package folder that is not what it states to be; without a key, only where it
    states anything."""
    signature = signature_check(settings)
    if signature is None and not (folder / PROVENANCE).is_file():
        return
    verdict = verify_folder(folder, signature=signature)
    if not verdict.ok:
        hint = f"see: modelmill feed verify --folder {folder}"
        raise Refused(f"{folder} is refused: {verdict.problems[0]}", hint=hint)


def published_export(feed: Feed, package: str, manifest: Json, dest: Path) -> Path | None:
    """Pull the export that a manifest names, if the feed has it."""
    wanted = (manifest.get("export") or {}).get("tree")
    for one in feed.versions(package):
        if wanted and one.tree == wanted and not one.deleted:
            pull(feed, package, one.version, dest)
            return dest
    return None


def fetch_portable(settings: Settings, cell: Cell, folder: Path) -> None:
    """The package that a compiled cell is made from, out of the feed, with its export, which
    verification compares with; see `build.origin`."""
    if cell.origin is None:
        raise AssertionError("only what is compiled from a package is fetched")
    try:
        feed = Workspace(settings).open_feed()
        signature = signature_check(settings, signs=True)
        pull(feed, cell.package, cell.origin.version, folder / PACKAGE, signature=signature)
        manifest = checked_manifest(read_json(folder / PACKAGE / MANIFEST))
        published_export(feed, cell.package, manifest, folder / EXPORT)
    except FeedError as error:
        failure, passes = FailureClass.UNKNOWN, isinstance(error, Unavailable)
        if isinstance(error, (Unavailable, Outage, Unauthorized)):
            failure = FailureClass.NETWORK
        elif isinstance(error, NotFound):
            failure = FailureClass.UNSUPPORTED
        text, hint = error.message, error.hint
        raise BuildFailed(failure, FETCH, text, hint=hint, retryable=passes) from error
    except (ValueError, UsageError) as error:
        raise BuildFailed(FailureClass.UNKNOWN, FETCH, str(error)) from error


def published_cells(
    settings: Settings, feed: Feed, stamp: str, what: str, wanted: Callable[[IndexCell], bool]
) -> list[IndexCell]:
    """The cells of a batch that the feed has, selected and wanted. Raises `NothingSelected`.

    `what`: is wanted, for the message.
    """
    settings = known_settings(settings, slug(stamp))
    signature = signature_check(settings, signs=True)
    index = resolve_index(
        feed, index_name(settings.package, stamp)[0], stamp, signature=signature
    ).index
    found = [
        one for one in index.cells if one.available and _selected(one, settings) and wanted(one)
    ]
    if not found:
        hint = f"the index lists {len(index.cells)} cells; give other globs"
        text = f"no published cell of stamp {stamp} matches and is {what}"
        raise NothingSelected(text, hint=hint)
    return found


def _selected(one: IndexCell, settings: Settings) -> bool:
    names = (one.model, f"{one.model}:{one.task}")
    target = one.target.partition("+")[0]
    return (
        (not settings.target or matches(target, settings.target))
        and (not settings.model or any(matches(name, settings.model) for name in names))
        and (not settings.only or matches(one.id, settings.only))
        and not (settings.skip and matches(one.id, settings.skip))
    )


def known_settings(settings: Settings, stamp: str) -> Settings:
    """With the package names of a sweep that the state knows."""
    known = known_sweep(settings, stamp, None)
    package = known[0].settings.get("package") if known else None
    return settings.replaced({"package": package}, f"sweep {stamp}") if package else settings


def known_sweep(
    settings: Settings, stamp: str, feed: str | None
) -> tuple[SweepInfo, PlannedCells] | None:
    """A sweep of the state, if it knows it."""
    work = Workspace(settings)
    if work.has_state():
        with work.read_state() as state:
            if info := state.find_sweep(stamp, feed):
                return info, PlannedCells.of(state, info.id)
    return None
