"""Building a published package again from its own provenance, and comparing the bytes.

It does not use this machine's store: every stage runs, in temporary folders.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feed.errors import Corrupt
from feed.interface import Feed
from flows.cli.activity import waiting_for
from flows.cli.settings import Settings
from flows.packages.published import Original, published_original
from flows.sweep.engines import engine_spec, runtimes_of
from flows.sweep.workspace import Workspace
from matrix.digest import PROVENANCE
from matrix.errors import UsageError
from matrix.model import EXPORT, Cell
from workers.attest.provenance import cell_of
from workers.build.builder import Builder, BuildOptions, Built
from workers.build.keys import diff_keys
from workers.compile.stage import CompileStage
from workers.host.client import EngineHost, HostLimits
from workers.store import Store

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
    with tempfile.TemporaryDirectory(prefix="rebuild-", dir=work.home) as folder:
        root = Path(folder)
        waiting_for(f"fetching {package} {version}")
        original = published_original(feed, package, version, root / "published")
        cell = _cell(original, settings, given)
        waiting_for(f"building {package} {version} again")
        made = _build(cell, original, settings, root)
        return Rebuilt(
            package,
            version,
            original.tree,
            made.tree,
            tuple(diff_keys(_comparable(original.manifest), _comparable(made.manifest))),
            round(made.seconds, 3),
        )


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
        return replace(
            _pinned(cell, commits.get(cell.id)),
            members=tuple(_pinned(one, commits.get(one.id)) for one in cell.members),
        )
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
        raise UsageError(
            f"it was made {what} named {known_as!r}",
            hint=f"say with --{name} where that is on this machine",
        )
    if not (cwd / folder).is_dir():
        raise UsageError(f"--{name} {folder}: there is no such folder")
    return str((cwd / folder).absolute())


def _commits(manifest: Json, cell: Cell) -> dict[str, str | None]:
    """The commit of each cell's source; a context group has one for each of its members."""
    source = manifest["source"]
    return {
        cell.id: source.get("commit"),
        **{
            one["cell"]: source["members"][one["name"]].get("commit")
            for one in manifest.get("members", ())
        },
    }


def _pinned(cell: Cell, commit: str | None) -> Cell:
    """Pin the source to the commit in the manifest: a branch has moved on since."""
    if not commit:
        return cell
    source = replace(cell.model.source, revision=commit)
    return replace(cell, model=replace(cell.model, source=source))


def _build(cell: Cell, original: Original, settings: Settings, root: Path) -> Built:
    manifest = original.manifest
    spec = engine_spec(settings.replaced({"engine": original.recipe["engine"]}, "the package"))
    limits = HostLimits(memory=settings.memory or 0)
    options = BuildOptions(
        stamp="rebuild",
        self_contained=any(one["path"].startswith(f"{EXPORT}/") for one in manifest["files"]),
        remote_code=settings.allow_remote_code,
        pickle=settings.allow_pickle,
    )
    with (
        closing(Store(root / "store")) as store,
        closing(runtimes_of(settings, limits, root / "logs")) as runtimes,
    ):
        host = EngineHost(spec, limits=limits, log_dir=root / "logs")
        # What an emulator made is made again by one; on a device the comparison tells them apart.
        compiler = CompileStage(runtimes, emulated=True, base=settings.cwd)
        with closing(Builder(store, host, root / "work", options, compiler=compiler)) as builder:
            version = cell.version if manifest["kind"] == EXPORT else None
            return builder.build(cell, export_version=version)


def _comparable(manifest: Json) -> dict[str, Any]:
    """A manifest whose lists are keyed by name, so that differences have names too."""
    named = dict(manifest)
    named["files"] = {one["path"]: one["sha256"] for one in manifest["files"]}
    named["stages"] = {
        f"{one['stage']} {one['component']}".strip(): one for one in manifest["stages"]
    }
    return named
