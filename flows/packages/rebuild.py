"""Building a published package again from its own provenance, and comparing the bytes.

The published bytes are read and checked first, all of them. It does not use this machine's store:
every stage runs, in temporary folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feed.errors import Corrupt
from feed.interface import Feed
from flows.output.activity import waiting_for
from flows.packages.builder import open_builder
from flows.packages.published import Original, published_original
from flows.packages.signing import signature_check
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace
from machine.files import temporary_folder
from matrix.digest import PROVENANCE
from matrix.errors import UsageError
from matrix.model import EXPORT, Cell, Plan
from workers.attest.provenance import cell_of
from workers.build.built import Built
from workers.build.keys import diff_keys

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A package as it is in the feed and as it was built now."""

    package: str
    version: str
    published: str
    """Tree digest."""
    rebuilt: str
    differences: tuple[str, ...]
    seconds: float
    signed: bool = False
    """Whether source, commit and recipe come from a provenance that is signed with the given key;
    else they are what the package says."""

    @property
    def same(self) -> bool:
        """Whether every byte of its content is the same."""
        return self.published == self.rebuilt


def rebuild(
    feed: Feed, package: str, version: str, settings: Settings, given: Mapping[str, Path | None]
) -> Rebuilt:
    """Build it again. Raises `BuildFailed` if it cannot be built on this machine.

    `given`: where the local `source` and `recipes` that it was made from are on this machine.
    """
    work = Workspace(settings)
    work.prepare()
    with temporary_folder("rebuild-", work.home) as root:
        waiting_for(f"fetching {package} {version}")
        signature, dest = signature_check(settings), root / "published"
        original = published_original(feed, package, version, dest, signature, ("*",))
        made = _build(_cell(original, settings, given), original, settings, root)
        differences = diff_keys(_comparable(original.manifest), _comparable(made.manifest))
        trees, seconds = (original.tree, made.tree), round(made.seconds, 3)
        signed = original.signed
        return Rebuilt(package, version, *trees, tuple(differences), seconds, signed)


def _cell(original: Original, settings: Settings, given: Mapping[str, Path | None]) -> Cell:
    recipe = original.recipe
    try:
        model = recipe["model"]
        sources = [one["model"]["source"] for one in (recipe, *recipe.get("members", ()))]
        folders = list({one["ref"] for one in sources if one["kind"] == "folder"})
        if len(folders) > 1:
            raise UsageError("it was made from several local folders: a rebuild takes one")
        local = folders[0] if folders else None
        cell = cell_of(
            recipe,
            timeout=settings.timeout,
            folder=_place("source", given, local, "from a local folder", settings.cwd),
            recipes=_place("recipes", given, model.get("recipes"), "with recipes", settings.cwd),
        )
        commits = _commits(original.manifest, cell)
        members = tuple(_pinned(one, commits.get(one.id)) for one in cell.members)
        return replace(_pinned(cell, commits.get(cell.id)), members=members)
    except (LookupError, TypeError, ValueError) as error:
        raise Corrupt(f"its {PROVENANCE} holds no recipe: {error!r}") from error


def _place(
    name: str, given: Mapping[str, Path | None], known_as: str | None, what: str, cwd: Path
) -> str | None:
    """One of these folders; required if the package was made from one (`known_as`)."""
    folder = given.get(name)
    if folder is None:
        if known_as is None:
            return None
        hint = f"say with --{name} where that is on this machine"
        raise UsageError(f"it was made {what} named {known_as!r}", hint=hint)
    if not (cwd / folder).is_dir():
        raise UsageError(f"--{name} {folder}: there is no such folder")
    return str((cwd / folder).absolute())


def _commits(manifest: Json, cell: Cell) -> dict[str, str | None]:
    """The commit of each cell's source; a context group has one for each of its members."""
    source = manifest["source"]
    members = {one["cell"]: one["name"] for one in manifest.get("members", ())}
    commits = {name: source["members"][own].get("commit") for name, own in members.items()}
    return {cell.id: source.get("commit"), **commits}


def _pinned(cell: Cell, commit: str | None) -> Cell:
    """Pin the source to the commit in the manifest: a branch has moved on since."""
    if not commit:
        return cell
    source = replace(cell.model.source, revision=commit)
    return replace(cell, model=replace(cell.model, source=source))


def _build(cell: Cell, original: Original, settings: Settings, root: Path) -> Built:
    manifest, engine = original.manifest, original.recipe["engine"]
    whole = any(one["path"].startswith(f"{EXPORT}/") for one in manifest["files"])
    plan = Plan("rebuild", (), "", "", engine, self_contained=whole)
    # What an emulator made is made again by one; on a device the comparison tells them apart.
    settings = settings.replaced({"engine": engine}, "the package")
    with open_builder(
        plan, replace(settings, home=str(root), store=None, cache=None, emulated=True)
    ) as builder:
        waiting_for(f"building {cell.id} again")
        version = cell.version if manifest["kind"] == EXPORT else None
        return builder.build(cell, export_version=version)


def _comparable(manifest: Json) -> dict[str, Any]:
    """A manifest whose lists are keyed by name, so that differences have names too."""
    files = {one["path"]: one["sha256"] for one in manifest["files"]}
    stages = {f"{one['stage']} {one['component']}".strip(): one for one in manifest["stages"]}
    return {**manifest, "files": files, "stages": stages}
