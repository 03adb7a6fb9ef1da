"""A hypothesis applied to a planned cell, and several hypotheses as one.

The trial is planned in the ordinary way from what the catalog would say, so stages that it shares
with its baseline have the same keys and are built once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matrix import build_options
from matrix.cellid import cell_id
from matrix.digest import MANIFEST, FileEntry, files_digest, tree_digest, value_digest
from matrix.errors import UsageError
from matrix.hypotheses import Guards, Hypothesis
from matrix.model import Cell, Model, Overrides, Profile, Target
from matrix.policy import Flags, overrides_of, policies

LISTS = frozenset({"passes", "without_passes", "flags", "without_flags", "float_ops"})
"""Build options to which a hypothesis adds; others take its value."""
OPPOSITES = (("passes", "without_passes"), ("flags", "without_flags"))


class Unfit(UsageError):
    """A hypothesis cannot be applied to a cell; with the reason."""


def overlay(cell: Cell, hypothesis: Hypothesis, profile: Profile | None = None) -> Cell:
    """The cell as it would be planned if its catalog said what the hypothesis says.

    The hypothesis is that of the engine (`Hypothesis.for_engine`). `profile`: what one about
    compiling compiles for. Raises `Unfit`.
    """
    if hypothesis.missing:
        raise Unfit(hypothesis.missing)
    profile = _profile(cell, hypothesis, profile)
    asked = cell.policy.asked
    own = replace(
        overrides_of(cell.model, cell.target),
        precision=(asked,) if asked else None,
        opset=cell.policy.opset,
    )
    changed = overlaid(own, hypothesis, cell.target)
    (policy,) = policies(changed, cell.target, Flags())
    if hypothesis.precision and policy.precision != hypothesis.precision:
        raise Unfit(policy.notices[0])
    precision = None if policy.default else policy.precision
    label = profile.label if profile else None
    return replace(
        cell,
        id=cell_id(cell.model.id, cell.model.task, cell.target.label, precision, label),
        model=with_overrides(cell.model, cell.target.label, changed),
        policy=policy,
        profile=profile,
        origin=None,
    )


def overlaid(own: Overrides, hypothesis: Hypothesis, target: Target) -> Overrides:
    """What the catalog says of a target with what a hypothesis changes. Raises `Unfit`."""
    low, high = target.opset
    if hypothesis.opset is not None and not low <= hypothesis.opset <= high:
        raise Unfit(f"{target.label} takes opsets {low} to {high}, not {hypothesis.opset}")
    return replace(
        own,
        precision=(hypothesis.precision,) if hypothesis.precision else own.precision,
        opset=own.opset if hypothesis.opset is None else hypothesis.opset,
        build=merged_build(own.build or {}, hypothesis.build) or None,
    )


def with_overrides(model: Model, label: str, overrides: Overrides) -> Model:
    """The model with these overrides for one target, before those that it has."""
    rest = {name: one for name, one in model.per_target.items() if name != label}
    return replace(model, per_target={label: overrides, **rest})


def merged_build(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The build options of both; lists are joined. Raises `Unfit` for what excludes each other."""
    both = {**base, **more}
    for name in LISTS & base.keys() & more.keys():
        both[name] = sorted({*base[name], *more[name]})
    for one, other in OPPOSITES:
        # What is added now wins over what the catalog left out, and the other way round.
        for mine, theirs in ((one, other), (other, one)):
            if mine in more and theirs in base and theirs not in more:
                both[theirs] = [name for name in both[theirs] if name not in more[mine]]
        if twice := sorted(set(both.get(one, ())) & set(both.get(other, ()))):
            raise Unfit(f"{twice[0]} cannot be both in {one} and in {other}")
    if problem := build_options.contradiction(both):
        raise Unfit(problem)
    return {name: value for name, value in both.items() if name not in LISTS or value}


def _profile(cell: Cell, hypothesis: Hypothesis, profile: Profile | None) -> Profile | None:
    if not hypothesis.compiled:
        return cell.profile
    if profile is None:
        raise Unfit(f"no device profile of {cell.target.label} can be compiled for here")
    return profile


@dataclass(frozen=True, slots=True)
class Combined:
    """What came of a combination."""

    hypothesis: Hypothesis | None
    """None: fewer than two can be combined."""
    parts: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    """Hypotheses that are not part of it, with the reason."""


def combined(hypotheses: Sequence[Hypothesis]) -> Combined:
    """One hypothesis of several, the most important first: it wins where two exclude each other."""
    parts: list[Hypothesis] = []
    left_out: list[tuple[str, str]] = []
    for one in hypotheses:
        reason = "" if one.combine else "it is tried alone only"
        reason = reason or next(filter(None, (conflict(other, one) for other in parts)), "")
        if reason:
            left_out.append((one.id, reason))
        else:
            parts.append(one)
    made = _joined(parts) if len(parts) > 1 else None
    return Combined(made, tuple(one.id for one in parts), tuple(left_out))


def conflict(one: Hypothesis, other: Hypothesis) -> str:
    """Why two hypotheses cannot be combined; empty if they can."""
    ours, others = _single_values(one), _single_values(other)
    for name in sorted(ours.keys() & others.keys()):
        if ours[name] != others[name]:
            return f"{one.id} sets {name} {ours[name]}, {other.id} sets {others[name]}"
    for mine, theirs in ((one, other), (other, one)):
        for name, against in OPPOSITES:
            if twice := sorted({*mine.build.get(name, ())} & {*theirs.build.get(against, ())}):
                return f"{mine.id} runs {twice[0]}, {theirs.id} leaves it out"
    try:
        merged_build(one.build, other.build)
    except Unfit as error:
        return f"{one.id} and {other.id}: {error.message}"
    return ""


def _single_values(one: Hypothesis) -> dict[str, Any]:
    """What it sets to one value each, by name."""
    fields = {name: getattr(one, name) for name in ("opset", "precision", "compiled")}
    given = {name: value for name, value in fields.items() if value}
    build = {name: value for name, value in one.build.items() if name not in LISTS}
    return {**given, **build, **one.runtime}


def _joined(parts: Sequence[Hypothesis]) -> Hypothesis:
    build: dict[str, Any] = {}
    for one in parts:
        build = merged_build(build, one.build)
    return Hypothesis(
        id="+".join(one.id for one in parts),
        title="; ".join(one.title for one in parts),
        targets=parts[0].targets,
        axis=parts[0].axis,
        opset=next((one.opset for one in parts if one.opset is not None), None),
        precision=next((one.precision for one in parts if one.precision), None),
        build=build,
        runtime={name: value for one in parts for name, value in one.runtime.items()},
        compiled=next((one.compiled for one in parts if one.compiled), ""),
        guards=Guards(),
        combine=False,
    )


def trial_digest(files: Iterable[FileEntry], runtime: Mapping[str, str]) -> str:
    """The identity of what is measured: equal models, opened in the same way.

    The manifest is left out: it holds the settings.
    """
    artifact = tree_digest(file for file in files if file.path != MANIFEST)
    opened = FileEntry(artifact, 0, value_digest(dict(runtime)))
    return files_digest([opened]) if runtime else artifact
