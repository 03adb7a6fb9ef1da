"""The plan of a sweep: catalog x targets, filtered, resolved, named and checked, without I/O.

Names are made for the whole catalog, so they do not depend on the selection; the problems of what
is selected are reported all at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from matrix.abilities import abilities_of
from matrix.catalog import Catalog
from matrix.cells import Crossing, group_models, group_problems, groups_of
from matrix.errors import NothingSelected, PlanError, Problem, looked_up
from matrix.model import EXPORT, Cell, Model, Plan, PlannedModel, Policy, Target
from matrix.naming import Limits, Namer, index_name, model_room, stamp_problems, template_problems
from matrix.policy import PRECISIONS, Flags, least_opset, overrides_of, precision_named
from matrix.profiles import Profiles, load_profiles
from matrix.registry import skip_reason
from matrix.selector import Chosen, Filtered, Selection, chosen, filtered
from matrix.slugs import MODEL_LIMIT, Seniority, names_of, slug
from matrix.targets import OPSETS, Targets

LONGEST_OPSET = "opset99"
"""An export's version has the opset where a cell's has the precision."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The settings that determine a plan; `stamp` as the user wrote it."""

    stamp: str
    limits: Limits
    """Those of the feed that the plan is for."""
    package: str
    engine: str
    precision: tuple[str, ...]
    opset: int | None
    self_contained: bool
    compile: tuple[str, ...]
    """Labels of the device profiles that cells are compiled for besides."""
    emulated: bool
    """Whether an emulator of the device may compile."""
    timeout: float
    publish_timeout: float


def make_plan(
    catalog: Catalog,
    targets: Targets,
    selection: Selection,
    options: PlanOptions,
    seniority: Seniority = tuple,
    profiles: Profiles | None = None,
) -> Plan:
    """The plan of what is selected. Raises `PlanError` or `NothingSelected`."""
    problems: list[Problem] = []
    profiles = profiles or load_profiles(targets)
    crossing = _crossing(catalog, profiles, options, problems)
    models = (*catalog.models, *group_models(crossing.groups))
    namer = _namer(models, targets, profiles, options, seniority, problems)
    # Without a profile there is nothing to select a group for.
    part = filtered(selection, models if crossing.compile else catalog.models, targets, problems)
    cells = list(crossing.cells(part.models, part.targets))
    pick = chosen(
        selection,
        [cell.id for cell in cells],
        lambda: [cell.id for cell in crossing.cells(models, targets)],
        problems,
    )
    cells = [_able(cell, options.engine) for cell in cells if cell.id in pick.ids]
    problems += _opset_problems(cells)
    _refuse(problems, pick, bool(cells), (*part.notices, part.reason))
    planned = tuple(_planned(cells, namer))
    package, version = index_name(options.package, namer.stamp)
    plan = Plan(
        stamp=namer.stamp,
        models=planned,
        index_package=package,
        index_version=version,
        engine=options.engine,
        self_contained=options.self_contained,
        notices=(
            *catalog.notices,
            *part.notices,
            *part.left_out,
            *pick.notices,
            *_dropped(cells),
            *_not_compiled(cells, part, crossing),
            *_shared_names(planned, namer),
        ),
    )
    problems = name_problems(plan, options.limits)
    if problems:
        raise PlanError(problems)
    return plan


def _crossing(
    catalog: Catalog, profiles: Profiles, options: PlanOptions, problems: list[Problem]
) -> Crossing:
    precisions = looked_up("--precision", options.precision, precision_named, problems)
    low, high = OPSETS
    if options.opset is not None and not low <= options.opset <= high:
        problems.append(Problem("--opset", f"must be between {low} and {high}"))
    aims = {
        one.label: one for one in looked_up("--compile", options.compile, profiles.get, problems)
    }
    groups = groups_of(catalog.models)
    problems += group_problems(groups, catalog.models)
    return Crossing(
        Flags(tuple(precisions), options.opset),
        tuple(aims.values()),
        groups,
        options.emulated,
        options.timeout,
        options.publish_timeout,
    )


def _namer(
    models: Sequence[Model],
    targets: Targets,
    profiles: Profiles,
    options: PlanOptions,
    seniority: Seniority,
    problems: list[Problem],
) -> Namer:
    faults = stamp_problems(options.stamp, targets.labels)
    stamp = "0" if faults else slug(options.stamp)
    unfit = template_problems(options.package, options.limits)
    problems += faults + unfit
    # Room for the longest label, precision and profile, so that names do not depend on the
    # selection.
    words = max(map(len, (*targets.labels, EXPORT))) + max(map(len, (*PRECISIONS, LONGEST_OPSET)))
    words += max(len(profile.label) for profile in profiles)
    limit = options.limits.version.longest - len(f"0.0.0-{stamp}----") - words
    room = MODEL_LIMIT if unfit else model_room(options.package, options.limits)
    labels = [one.label for one in profiles]
    names = names_of(models, targets.labels, limit, seniority, room, labels)
    return Namer(stamp, options.package, names)


def _shared_names(models: Iterable[PlannedModel], namer: Namer) -> Iterator[str]:
    """A notice for each name that has a hash because another model has the plain name."""
    names, told = namer.names, set()
    for planned in models:
        model = planned.model
        for key, hashed in (
            (model.id, names.models[model.id]),
            (model.name, names.entries[model.name]),
        ):
            if key in names.yielded and key not in told:
                told.add(key)
                other = names.yielded[key]
                yield f"{key} is named {hashed}, because {other} has the plain name"


def _able(cell: Cell, engine: str) -> Cell:
    """The cell; skipped if the engine does not build for its execution provider."""
    abilities = abilities_of(engine)
    if cell.skip or abilities is None or abilities.builds_for(cell.target.provider):
        return cell
    why = f"unsupported by the engine {engine}: {abilities.why}"
    return replace(cell, skip=skip_reason(why))


def _opset_problems(cells: Iterable[Cell]) -> list[Problem]:
    found: dict[Problem, None] = {}
    for cell in (one for each in cells for one in (each.members or (each,))):
        if cell.skip or not (fault := _opset_fault(cell.target, cell.policy)):
            continue
        by_flag = overrides_of(cell.model, cell.target).opset is None
        where = "--opset" if by_flag else cell.model.where
        label = cell.target.label
        advice = f"set opset in [model.target.{label}], or skip that target"
        found[Problem(where, fault, advice)] = None
    return list(found)


def _opset_fault(target: Target, policy: Policy) -> str:
    low, high = target.opset
    if not low <= policy.opset <= high:
        return f"opset {policy.opset} is outside {low}..{high}, which {target.label} takes"
    if policy.opset < (least := least_opset(policy.precision, policy.quantizer)):
        return (
            f"{policy.precision} on {target.label} needs opset {least}, not {policy.opset}: "
            "DequantizeLinear takes no 4-bit integers before"
        )
    return ""


def _refuse(problems: list[Problem], pick: Chosen, some: bool, why: Sequence[str]) -> None:
    if problems or (pick.missed and some):
        raise PlanError([*problems, *pick.missed])
    if some:
        return
    reasons = [f"{item.where} {item.message}" for item in pick.missed]
    advice = "; ".join(item.hint for item in pick.missed if item.hint)
    text = "; ".join([*filter(None, why), *reasons]) or "--skip leaves no cell"
    raise NothingSelected(f"nothing selected: {text}", hint=advice)


def _planned(cells: Sequence[Cell], namer: Namer) -> Iterator[PlannedModel]:
    by_model: dict[str, list[Cell]] = {}
    for cell in cells:
        by_model.setdefault(cell.model.name, []).append(_named(cell, namer))
    for group in by_model.values():
        model = group[0].model
        group.sort(key=lambda cell: cell.profile is not None)  # portable cells come first
        yield PlannedModel(model, tuple(group), namer.package(model), namer.export_version(model))


def _named(cell: Cell, namer: Namer) -> Cell:
    members = tuple(_named(member, namer) for member in cell.members)
    package, version = namer.package(cell.model), namer.version(cell)
    return replace(cell, package=package, version=version, members=members)


def _not_compiled(cells: Sequence[Cell], part: Filtered, crossing: Crossing) -> Iterator[str]:
    """Profiles that no selected cell, or no group of selected entries, is compiled for."""
    there = {(cell.model.name, cell.profile.label) for cell in cells if cell.profile}
    used = {label for _model, label in there}
    for profile in crossing.compile:
        if profile.label not in used:
            yield (
                f"--compile {profile.label} compiles nothing: it takes cells of {profile.target}, "
                "which are not selected"
            )
    rows = {row.label for row in part.targets}
    for name, members in crossing.groups.items():
        if not any(member in part.models for member in members):
            continue
        for profile in crossing.compile:
            if profile.target not in rows or (name, profile.label) in there:
                continue
            why = f"it is not selected (--model {name})"
            if any(model.name == name for model in part.models):
                why = f"no cell of {profile.target} is selected in which its members agree"
            yield f"context group {name} is not compiled for {profile.label}: {why}"


def _dropped(cells: Iterable[Cell]) -> list[str]:
    """One line per notice, with the number of its cells."""
    counts = Counter(notice for cell in cells for notice in cell.policy.notices)
    return [f"{text} ({count} cell{'s' * (count > 1)})" for text, count in counts.items()]


def name_problems(plan: Plan, limits: Limits) -> list[Problem]:
    """Why a feed with these limits would refuse names of a plan."""
    names = [
        (one.package, one.version, one.id)
        for one in plan.packages()
        if one.is_export or not one.cell.skip
    ]
    names.append((plan.index_package, plan.index_version, "sweep index"))
    found = []
    owners: dict[tuple[str, str], str] = {}
    for package, version, who in names:
        faults = filter(None, (limits.package.problem(package), limits.version.problem(version)))
        found += [Problem(who, fault) for fault in faults]
        other = owners.setdefault((package, version), who)
        if other != who:
            found.append(Problem(who, f"has the same version as {other}: {version}"))
    for package, count in Counter(package for package, _, _ in names).items():
        if count > limits.versions:
            text = f"would get {count} versions, the feed takes {limits.versions}"
            found.append(Problem(f"package {package}", text, "use {model} in the package template"))
    return found
