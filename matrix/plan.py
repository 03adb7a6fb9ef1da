"""The plan of a sweep: catalog x targets, filtered, resolved, named and checked, without I/O.

Names are made for the whole catalog, so they do not depend on the selection; the problems of what
is selected are reported all at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from matrix.catalog import Catalog
from matrix.cellid import cell_id
from matrix.context_groups import Groups, group_models, group_problems, groups_of
from matrix.errors import NothingSelected, PlanError, Problem, UsageError
from matrix.limits import Limits
from matrix.model import (
    EXPORT,
    Cell,
    Model,
    Overrides,
    Plan,
    PlannedModel,
    Policy,
    Profile,
    Target,
)
from matrix.naming import Namer, model_room, stamp_problems, template_problems
from matrix.nearest import hint, quote
from matrix.needs import compiling
from matrix.policy import Flags, opset_of, overrides_of, policies
from matrix.precision import NAMES, PRECISIONS, canonical
from matrix.profiles import Profiles, load_profiles
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


@dataclass(frozen=True, slots=True)
class _Draft:
    """A cell that has no package and version yet."""

    id: str
    model: Model
    target: Target
    overrides: Overrides
    policy: Policy
    profile: Profile | None = None
    members: tuple[_Draft, ...] = ()
    """Of a context group."""


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
    groups = groups_of(catalog.models)
    problems += group_problems(groups, catalog.models)
    flags = replace(_flags(options, profiles, problems), groups=groups)
    models = (*catalog.models, *group_models(groups))
    namer = _namer(models, targets, profiles, options, seniority, problems)
    # Without a profile there is nothing to select a group for.
    part = filtered(selection, models if flags.compile else catalog.models, targets, problems)
    drafts = list(_drafts(part.models, part.targets, flags))
    pick = chosen(
        selection,
        [draft.id for draft in drafts],
        lambda: [draft.id for draft in _drafts(models, targets, flags)],
        problems,
    )
    drafts = [draft for draft in drafts if draft.id in pick.ids]
    problems += _opset_problems(drafts, flags)
    _refuse(problems, pick, bool(drafts), (*part.notices, part.reason))
    planned = tuple(_planned(drafts, namer, options))
    package, version = namer.index()
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
            *_dropped(drafts),
            *_not_compiled(drafts, flags),
            *_groups_left_out(drafts, part, flags),
            *_shared_names(planned, namer),
        ),
    )
    problems = name_problems(plan, options.limits)
    if problems:
        raise PlanError(problems)
    return plan


@dataclass(frozen=True, slots=True)
class _Flags(Flags):
    """The flags that decide which cells there are."""

    compile: tuple[Profile, ...] = ()
    groups: Groups = field(default_factory=dict)


def _flags(options: PlanOptions, profiles: Profiles, problems: list[Problem]) -> _Flags:
    found = []
    for name in options.precision:
        precision = canonical(name)
        if precision is None:
            text = f"unknown precision {quote(name)}"
            problems.append(Problem("--precision", text, hint(name, NAMES)))
        else:
            found.append(precision)
    low, high = OPSETS
    if options.opset is not None and not low <= options.opset <= high:
        problems.append(Problem("--opset", f"must be between {low} and {high}"))
    aims: dict[str, Profile] = {}
    for name in options.compile:
        try:
            aims.setdefault(profiles.get(name).label, profiles.get(name))
        except UsageError as error:
            problems.append(Problem("--compile", error.message, error.hint))
    return _Flags(tuple(found), options.opset, tuple(aims.values()))


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


def _drafts(models: Iterable[Model], targets: Iterable[Target], flags: _Flags) -> Iterator[_Draft]:
    rows = tuple(targets)
    # Most models override nothing, so a target has one policy for all of them.
    plain = {row.label: policies(Overrides(), row, flags) for row in rows}
    for model in models:
        if model.name in flags.groups:
            yield from _group_drafts(model, rows, flags)
            continue
        special = bool(model.per_target) or model.overrides != Overrides()
        grouped = model.context_group in flags.groups
        for row in rows:
            overrides = overrides_of(model, row) if special else model.overrides
            found = policies(overrides, row, flags) if special else plain[row.label]
            profiles = [one for one in flags.compile if one.target == row.label and not grouped]
            for policy in found:
                for profile in (None, *profiles):
                    yield _draft(model, row, overrides, policy, profile)


def _draft(
    model: Model,
    row: Target,
    overrides: Overrides,
    policy: Policy,
    profile: Profile | None,
    members: tuple[_Draft, ...] = (),
) -> _Draft:
    precision = None if policy.default else policy.precision
    label = profile.label if profile else None
    name = cell_id(model.id, model.task, row.label, precision, label)
    return _Draft(name, model, row, overrides, policy, profile, members)


def _group_drafts(group: Model, rows: Iterable[Target], flags: _Flags) -> Iterator[_Draft]:
    """A compiled cell for each precision that all members have."""
    portable = replace(flags, compile=(), groups={})
    for row in rows:
        profiles = [one for one in flags.compile if one.target == row.label]
        drafts = [list(_drafts([one], [row], portable)) for one in flags.groups[group.name]]
        for first in drafts[0] if profiles else ():
            members = [_like(first, others) for others in drafts]
            if None in members:
                continue
            found = tuple(one for one in members if one)
            skip = next((f"{one.model.name}: {one.overrides.skip}" for one in found
                         if one.overrides.skip), None)  # fmt: skip
            overrides = replace(first.overrides, skip=skip)
            for profile in profiles:
                yield _draft(group, row, overrides, first.policy, profile, found)


def _like(first: _Draft, others: Iterable[_Draft]) -> _Draft | None:
    """The one that has the same precision in its id."""
    tail = first.id.rpartition("@")[2]
    return next((one for one in others if one.id.rpartition("@")[2] == tail), None)


def _opset_problems(cells: Iterable[_Draft], flags: Flags) -> list[Problem]:
    found: dict[Problem, None] = {}
    for draft in (one for cell in cells for one in (cell.members or (cell,))):
        low, high = draft.target.opset
        opset = opset_of(draft.overrides, draft.target, flags)
        if low <= opset <= high or draft.overrides.skip:
            continue
        where = "--opset" if draft.overrides.opset is None else draft.model.where
        text = f"opset {opset} is outside {low}..{high}, which {draft.target.label} takes"
        advice = f"set opset in [model.target.{draft.target.label}], or skip that target"
        found[Problem(where, text, advice)] = None
    return list(found)


def _refuse(problems: list[Problem], pick: Chosen, some: bool, why: Sequence[str]) -> None:
    if problems or (pick.missed and some):
        raise PlanError([*problems, *pick.missed])
    if some:
        return
    reasons = [f"{item.where} {item.message}" for item in pick.missed]
    advice = "; ".join(item.hint for item in pick.missed if item.hint)
    text = "; ".join([*filter(None, why), *reasons]) or "--skip leaves no cell"
    raise NothingSelected(f"nothing selected: {text}", hint=advice)


def _planned(
    drafts: Sequence[_Draft], namer: Namer, options: PlanOptions
) -> Iterator[PlannedModel]:
    by_model: dict[str, list[_Draft]] = {}
    for draft in drafts:
        by_model.setdefault(draft.model.name, []).append(draft)
    for group in by_model.values():
        model = group[0].model
        package = namer.package(model)
        group.sort(key=lambda draft: draft.profile is not None)  # portable cells come first
        cells = tuple(_cell(draft, package, namer, options) for draft in group)
        yield PlannedModel(model, cells, package, namer.export_version(model))


def _cell(draft: _Draft, package: str, namer: Namer, options: PlanOptions) -> Cell:
    overrides, policy = draft.overrides, draft.policy
    precision = None if policy.default else policy.precision
    return Cell(
        id=draft.id,
        model=draft.model,
        target=draft.target,
        policy=policy,
        package=package,
        version=namer.version(
            draft.model, draft.target, precision, draft.profile.label if draft.profile else None
        ),
        timeout=overrides.timeout or options.timeout,
        publish_timeout=overrides.publish_timeout or options.publish_timeout,
        skip=overrides.skip,
        needs=_needs(draft, options),
        profile=draft.profile,
        members=tuple(
            _cell(member, namer.package(member.model), namer, options) for member in draft.members
        ),
    )


def _needs(draft: _Draft, options: PlanOptions) -> tuple[str, ...]:
    if draft.profile is None:
        return draft.model.needs
    return (*draft.model.needs, compiling(draft.profile.label, emulated=options.emulated))


def _not_compiled(drafts: Sequence[_Draft], flags: _Flags) -> Iterator[str]:
    """Profiles that no selected cell is compiled for."""
    used = {draft.profile.label for draft in drafts if draft.profile}
    for profile in flags.compile:
        if profile.label not in used:
            yield (
                f"--compile {profile.label} compiles nothing: it takes cells of {profile.target}, "
                "which are not selected"
            )


def _groups_left_out(drafts: Sequence[_Draft], part: Filtered, flags: _Flags) -> Iterator[str]:
    """Profiles for which the entries of a group are selected and the group is not compiled."""
    there = {(draft.model.name, draft.profile.label) for draft in drafts if draft.profile}
    rows = {row.label for row in part.targets}
    for name, members in flags.groups.items():
        if not any(member in part.models for member in members):
            continue
        for profile in flags.compile:
            if profile.target not in rows or (name, profile.label) in there:
                continue
            why = f"it is not selected (--model {name})"
            if any(model.name == name for model in part.models):
                why = f"no cell of {profile.target} is selected in which its members agree"
            yield f"context group {name} is not compiled for {profile.label}: {why}"


def _dropped(drafts: Iterable[_Draft]) -> list[str]:
    """One line per notice, with the number of its cells."""
    counts = Counter(notice for draft in drafts for notice in draft.policy.notices)
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
        faults = filter(None, (limits.package_problem(package), limits.version_problem(version)))
        found += [Problem(who, fault) for fault in faults]
        other = owners.setdefault((package, version), who)
        if other != who:
            found.append(Problem(who, f"has the same version as {other}: {version}"))
    for package, count in Counter(package for package, _, _ in names).items():
        if count > limits.versions:
            text = f"would get {count} versions, the feed takes {limits.versions}"
            found.append(Problem(f"package {package}", text, "use {model} in the package template"))
    return found
