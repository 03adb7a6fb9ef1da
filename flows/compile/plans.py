"""`modelmill compile` for packages that exist: from versions of a feed, or a folder, to a plan.

A planned cell names the package that it is made from, so no catalog is needed and no earlier stage
runs again. The plan goes through the same loop as that of a sweep (`flows.run.run`), or
its packages are written into a folder (`flows.compile.written`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from feed.errors import Corrupt
from feed.index import IndexCell
from feed.interface import Feed, Published
from feed.listing import list_versions
from flows.output.activity import waiting_for
from flows.packages.published import (
    Original,
    known_settings,
    known_sweep,
    published_cells,
    published_original,
)
from flows.packages.signing import signature_check
from flows.plan.recorded import PlannedCells, remember
from flows.run.run import Run
from flows.settings.settings import Settings
from flows.settings.workspace import Workspace, find_sweep
from machine.files import temporary_folder
from matrix.cellid import parse
from matrix.codec import to_json
from matrix.errors import Exit, NothingSelected, PlanError, UsageError
from matrix.globs import matches
from matrix.model import EXPORT, Cell, Origin, Plan, PlannedModel, Profile
from matrix.naming import index_name
from matrix.needs import compiling
from matrix.plan import name_problems
from matrix.slugs import slug
from workers.attest.provenance import cell_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be compiled for which profiles."""

    settings: Settings
    profiles: tuple[Profile, ...]
    asked: tuple[str, ...] = ()
    """Cells that were asked for, portable or with a profile; none: all that are selected."""

    def of_versions(self, feed: Feed, package: str, version: str) -> list[Published]:
        """The version, or all portable ones that globs match."""
        found = list(list_versions(feed, package, version))
        if len(found) != 1 or (package, version) != (found[0].package, found[0].version):
            found = [one for one in found if _is_portable(one)]
        if not found:
            text = f"no portable version of {package} matches {version}"
            raise NothingSelected(text, hint=f"see: modelmill feed ls {package}")
        return found

    def of_stamp(self, feed: Feed, stamp: str) -> list[IndexCell]:
        """The portable cells of a batch for the targets of the profiles, by its index."""
        targets = {one.target for one in self.profiles}
        asked = [str(replace(parse(cell), profile=None)) for cell in self.asked]

        def wanted(one: IndexCell) -> bool:
            return one.target in targets and (not asked or matches(one.id, asked))

        what = f"for {' or '.join(sorted(targets))}"
        return published_cells(self.settings, feed, stamp, what, wanted)

    def cells(self, original: Original, stamp: str | None, package: str = "") -> Iterator[Cell]:
        """The compiled cells of a portable package, one for each profile that fits.

        `stamp`: of the batch that they are added to; None: the batch of the package. `package`: its
        name in the feed; empty: it is in a folder.
        """
        portable = self._portable(original)
        batch = stamp or original.stamp
        tail = portable.version.removeprefix(f"0.0.0-{original.stamp}")
        for profile in self.profiles:
            if profile.target != portable.target.label:
                continue
            yield replace(
                portable,
                id=f"{portable.id}+{profile.label}",
                version=f"0.0.0-{batch}{tail}-{slug(profile.label)}",
                profile=profile,
                origin=Origin(portable.version if package else "", original.tree),
                needs=(compiling(profile.label, emulated=self.settings.emulated),),
            )

    def _portable(self, original: Original) -> Cell:
        recipe = original.recipe
        if original.manifest.get("kind") != "cell":
            raise UsageError(f"{original.title} is not the package of a cell")
        if label := (original.manifest.get("profile") or {}).get("label"):
            hint = "give the portable package that it was made from"
            raise UsageError(f"{original.title} is compiled already, for {label}", hint=hint)
        try:
            cell = cell_of(recipe, timeout=self.settings.timeout)
            if cell.id != original.manifest["cell"]:
                raise ValueError(f"it is for {cell.id}")
        except (LookupError, TypeError, ValueError) as error:
            raise Corrupt(f"{original.title}: its provenance holds no recipe: {error!r}") from error
        return replace(cell, publish_timeout=self.settings.publish_timeout)


def plans_of(
    feed: Feed, wanted: Wanted, versions: Iterable[Published | IndexCell], stamp: str | None
) -> list[Plan]:
    """What is to be made of these versions: a plan for the batch of that stamp or, without one, for
    each batch that made any of them."""
    found, signature = [], signature_check(wanted.settings, signs=True)
    with temporary_folder("modelmill-compile-") as folder:
        for number, one in enumerate(versions):
            waiting_for(f"reading {one.package} {one.version}")
            dest = folder / str(number)
            original = published_original(feed, one.package, one.version, dest, signature)
            found.append((original, one.package))
    plans = _plans(wanted, found, stamp)
    if problems := [one for plan in plans for one in name_problems(plan, feed.limits)]:
        raise PlanError(problems)
    return plans


def folder_plan(folder: Path, wanted: Wanted) -> Plan:
    """What is to be made of a package that was pulled, every file checked."""
    from feed.verify import verify_folder

    waiting_for(f"checking {folder}")
    verdict = verify_folder(folder, signature=signature_check(wanted.settings, signs=True))
    if not verdict.ok:
        raise Corrupt(f"{folder}: {verdict.problems[0]}", hint="pull it again")
    original = Original.read(str(folder), folder, verdict.tree)
    (plan,) = _plans(wanted, [(original, "")])
    return plan


def _plans(
    wanted: Wanted, originals: Sequence[tuple[Original, str]], stamp: str | None = None
) -> list[Plan]:
    """`originals`: each with its package in the feed; empty: it is in a folder."""
    batches: dict[str, list[Cell]] = {}
    engines: dict[str, str] = {}
    for original, package in originals:
        batch = stamp or original.stamp
        if cells := list(wanted.cells(original, stamp, package)):
            batches.setdefault(batch, []).extend(cells)
            engines.setdefault(batch, str(original.manifest["engine"]["name"]))
    if not batches:
        first = originals[0][0]
        target = (first.manifest.get("target") or {}).get("label", "no target")
        labels = " and ".join(f"{one.label} for {one.target}" for one in wanted.profiles)
        text = f"nothing to compile: {first.title} is for {target}, the profile {labels}"
        raise NothingSelected(text)
    settings = wanted.settings
    return [_plan(batch, cells, engines[batch], settings) for batch, cells in batches.items()]


def _refuse_other_options(feed: Feed, plan: Plan) -> None:
    """A version that was compiled for the same profile with other options stays as it is."""
    for cell in plan.cells():
        there = feed.find(cell.package, cell.version)
        if there is None or there.deleted:
            continue
        with temporary_folder("modelmill-compile-") as folder:
            dest = folder / "it"
            found = published_original(feed, cell.package, cell.version, dest, None)
        if found.manifest.get("profile") != json.loads(json.dumps(to_json(cell.profile))):
            made = f"{cell.package} {cell.version} was compiled with other options for"
            text = f"{made} {cell.column.partition('+')[2]}, and a version never changes"
            hint = "write it to a folder with -o DIR, or give the options a profile of their own"
            raise UsageError(text, hint=hint)


def _plan(stamp: str, cells: Iterable[Cell], engine: str, settings: Settings) -> Plan:
    models: dict[str, list[Cell]] = {}
    for cell in {cell.id: cell for cell in cells}.values():
        models.setdefault(cell.model.name, []).append(cell)
    planned = (
        PlannedModel(group[0].model, tuple(group), group[0].package, "")
        for group in models.values()
    )
    index = index_name(known_settings(settings, stamp).package, stamp)
    return Plan(stamp, tuple(planned), *index, engine)


def publish_compiled(plan: Plan, settings: Settings, feed: Feed, *, as_json: bool) -> Exit:
    """Make and publish the cells of a plan as a run of its sweep."""
    _refuse_other_options(feed, plan)
    settings = known_settings(settings, plan.stamp).replaced({"stamp": plan.stamp}, "the packages")
    recorded = remember(settings, "")
    if known := known_sweep(settings, plan.stamp, feed.name):
        info, planned = known
        recorded = dict(info.settings)
        plan = replace(plan, models=tuple(_as_planned(model, planned) for model in plan.models))
    return Run(plan, settings, recorded, as_json).go()


def last_stamp(settings: Settings) -> str:
    """The stamp of the sweep that this machine began last."""
    with Workspace(settings).read_state() as state:
        return find_sweep(state, None).stamp


def _as_planned(model: PlannedModel, known: PlannedCells) -> PlannedModel:
    """With what only the catalog of the sweep says of a model."""
    told = known.model(model.name)
    if told is None:
        return model
    own = replace(model.model, priority=told.priority, group=told.group)
    cells = tuple(replace(cell, model=own) for cell in model.cells)
    return replace(model, model=own, cells=cells)


def _is_portable(one: Published) -> bool:
    """By its description, whether a version is the portable package of a cell."""
    right = one.description.rpartition("@")[2]
    return right != one.description and "+" not in right and right.partition(":")[0] != EXPORT
