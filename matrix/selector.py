"""Selection: which cells of the matrix a sweep is about.

A cell must pass every filter, and passes a filter that has one matching value. `only` and `skip`
are globs over cell ids and come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from matrix.errors import Problem, looked_up
from matrix.globs import compiled
from matrix.model import DEFAULT_PRIORITIES, PRIORITIES, Model, Target
from matrix.nearest import hint, quote
from matrix.targets import Targets

NEAREST_OF = 5000
"""Ids that are compared to find the nearest one: enough for any catalog seen so far."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What was asked for; an empty filter lets everything pass."""

    models: tuple[str, ...] = ()
    """Globs over model ids, as the next three are over what they name."""
    tasks: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    priorities: tuple[str, ...] = DEFAULT_PRIORITIES
    targets: tuple[str, ...] = ()
    """Labels, aliases or globs over labels."""
    eps: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filtered:
    """The models and targets that pass the filters, and notices about the filters."""

    models: tuple[Model, ...]
    targets: tuple[Target, ...]
    notices: tuple[str, ...] = ()
    """Filter values that match no model of the catalog."""
    left_out: tuple[str, ...] = ()
    """What the default priorities leave out."""
    reason: str = ""
    """If no model or no target is left: which filter left none."""


@dataclass(frozen=True, slots=True)
class _Filter:
    flag: str
    values: tuple[str, ...]
    value_of: Callable[[Model], str]

    def passes(self, glob: str, model: Model) -> bool:
        value = self.value_of(model)
        if self.flag == "--group":  # groups are titles (`Vision`): upper and lower case are equal
            glob, value = glob.casefold(), value.casefold()
        return compiled(glob).match(value) is not None


def filtered(
    selection: Selection, models: Sequence[Model], targets: Targets, problems: list[Problem]
) -> Filtered:
    """Apply the filters. Invalid values are problems; valid ones that match nothing are notices."""
    notices: list[str] = []
    left_out: list[str] = []
    passed = tuple(models)
    reason = ""
    for item in _model_filters(selection, problems):
        left = tuple(m for m in passed if any(item.passes(value, m) for value in item.values))
        if passed and not left:
            reason = _why_empty(item, passed)
        elif item.flag == "--priority" and item.values == DEFAULT_PRIORITIES:
            left_out = _left_out(passed, left)
        passed = left
        # P0 to P2 are the default, so a catalog without one of them is no reason for a notice.
        if item.flag != "--priority":
            notices += _missed(item, models)
    rows = _targets(selection, targets, problems)
    if not rows:
        reason = (
            reason or f"no target ({', '.join(targets.labels)}) passes --target, --ep, --device"
        )
    return Filtered(passed, rows, tuple(notices), tuple(left_out), reason)


def _model_filters(selection: Selection, problems: list[Problem]) -> list[_Filter]:
    priorities = tuple(value.strip().upper() for value in selection.priorities)
    problems += [
        Problem("--priority", f"unknown priority {quote(value)}", hint(value, PRIORITIES))
        for value in priorities
        if value not in PRIORITIES
    ]
    filters = [
        _Filter(flag, tuple(looked_up(flag, values, _usable, problems)), attrgetter(field))
        for flag, values, field in (
            ("--model", selection.models, "id"),
            ("--task", selection.tasks, "task"),
            ("--model-type", selection.model_types, "model_type"),
            ("--group", selection.groups, "group"),
        )
    ]
    filters.append(_Filter("--priority", priorities, attrgetter("priority")))
    return [item for item in filters if item.values]


def _usable(pattern: str) -> str:
    """The pattern itself. Raises `UsageError` for one that can match nothing."""
    compiled(pattern)
    return pattern


def _missed(item: _Filter, models: Sequence[Model]) -> list[str]:
    there = list(dict.fromkeys(map(item.value_of, models)))
    return [
        f"{item.flag} {quote(value)} matches no model of the catalog ({hint(value, there)})"
        for value in item.values
        if not any(item.passes(value, model) for model in models)
    ]


def _left_out(before: Sequence[Model], after: Sequence[Model]) -> list[str]:
    """What the default priorities leave out, which the user did not ask for."""
    count = len(before) - len(after)
    if not count:
        return []
    out = sorted({model.priority for model in before} - set(DEFAULT_PRIORITIES))
    models = f"{count} model{'s' if count != 1 else ''} of priority {' '.join(out)}"
    every = ",".join((*DEFAULT_PRIORITIES, *out))
    return [f"{models} left out by default; --priority {every} includes them"]


def _why_empty(item: _Filter, before: Sequence[Model]) -> str:
    text = f"{item.flag} {' '.join(map(quote, item.values))} leaves no model"
    if item.flag == "--priority":
        there = " ".join(sorted({model.priority for model in before}))
        return f"{text}: the models that the other filters leave have {there}"
    return text


def _targets(selection: Selection, targets: Targets, problems: list[Problem]) -> tuple[Target, ...]:
    before = len(problems)
    rows = looked_up("--target", selection.targets, targets.match, problems)
    labels = {row.label for found in rows for row in found}
    eps = set(looked_up("--ep", selection.eps, targets.ep, problems))
    devices = set(looked_up("--device", selection.devices, targets.device, problems))
    if len(problems) > before:
        return tuple(targets)
    return tuple(
        row
        for row in targets
        if (not labels or row.label in labels)
        and (not eps or row.ep in eps)
        and (not devices or row.device in devices)
    )


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `only` and `skip` leave."""

    ids: frozenset[str]
    notices: tuple[str, ...] = ()
    missed: tuple[Problem, ...] = ()
    """Patterns of `only` that match nothing: each would silently shrink a sweep."""


def chosen(
    selection: Selection,
    ids: Sequence[str],
    all_ids: Callable[[], Sequence[str]],
    problems: list[Problem],
) -> Chosen:
    """Apply `only` and `skip`. `all_ids`: those of the whole matrix, for hints."""
    left = set(ids)
    missed = []
    if selection.only:
        left = set()
        for pattern in looked_up("--only", selection.only, _usable, problems):
            hits = _matching(pattern, ids)
            left |= hits
            if not hits:
                missed.append(_missed_pattern(pattern, all_ids()))
    notices = []
    for pattern in looked_up("--skip", selection.skip, _usable, problems):
        hits = _matching(pattern, ids)
        left -= hits
        if not hits:
            notices.append(f"--skip {quote(pattern)} matches no cell")
    return Chosen(frozenset(left), tuple(notices), tuple(missed))


def _matching(pattern: str, ids: Iterable[str]) -> set[str]:
    match = compiled(pattern).match
    return {item for item in ids if match(item)}


def _missed_pattern(pattern: str, all_ids: Sequence[str]) -> Problem:
    if _matching(pattern, all_ids):
        return Problem("--only", f"{quote(pattern)} matches only cells that the filters leave out")
    # A pattern is often a part of an id, so less similarity than usual is enough.
    near = hint(pattern.replace("*", ""), all_ids[:NEAREST_OF], cutoff=0.4)
    return Problem("--only", f"{quote(pattern)} matches no cell", near)
