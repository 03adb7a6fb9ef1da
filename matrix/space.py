"""Files of hypotheses: those that come with modelmill, and the user's own.

Together they are the space of a tuning, which tries what suits the model. All faults of all files
are reported at once, each with its file and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matrix import build_options
from matrix.build_options import OF_ENGINES, read_build
from matrix.errors import PlanError, Problem, UsageError, looked_up
from matrix.globs import glob_fault, matches
from matrix.hypotheses import AXES, Guards, Hypothesis
from matrix.nearest import hint, quote
from matrix.policy import PRECISIONS, canonical
from matrix.reader import Entry, read_rows
from matrix.targets import OPSETS, Targets, load_targets
from matrix.vocabulary import CANDIDATES, OPERATORS, SESSION_OPTIONS

DATA = Path(__file__).parent / "data" / "hypotheses"
LONGEST_ID = 64


def read_space(paths: Iterable[Path], targets: Targets | None = None) -> dict[str, Hypothesis]:
    """The hypotheses of these files by id; one in a later file takes the place of an earlier one.

    Raises `PlanError` with every fault of every file.
    """
    problems: list[Problem] = []
    found: dict[str, Hypothesis] = {}
    known = targets or load_targets()
    seen: set[tuple[Path, str]] = set()
    for path, entry in read_rows(paths, "hypothesis", "id", problems):
        one = _hypothesis(entry, path.name, known)
        if (path, one.id) in seen:
            entry.bad(f"id {quote(one.id)} is there twice")
        seen.add((path, one.id))
        found[one.id] = one
    if problems:
        raise PlanError(problems, "the hypotheses")
    return found


def shipped() -> list[Path]:
    """The files that come with modelmill."""
    return sorted(DATA.glob("*.toml"))


def chosen(space: Mapping[str, Hypothesis], names: Sequence[str]) -> dict[str, Hypothesis]:
    """The hypotheses whose ids match a glob; all if there are no globs.

    Raises `UsageError` for a glob that matches nothing.
    """
    if not names:
        return dict(space)
    for name in names:
        if not any(matches(one, [name]) for one in space):
            raise UsageError(f"no hypothesis is called {quote(name)}", hint=hint(name, space))
    return {name: one for name, one in space.items() if matches(name, names)}


def _hypothesis(entry: Entry, file: str, targets: Targets) -> Hypothesis:
    name = _id(entry)
    labels = _targets(entry, targets)
    rows = {row.label: row.provider for row in targets if matches(row.label, labels)}
    one = replace(
        read_changes(entry),
        id=name,
        title=entry.needed("title"),
        targets=labels,
        axis=entry.choice("axis", AXES, required=True) or "",
        runtime=read_session(entry, rows),
        compiled=_compiled(entry),
        guards=_guards(entry),
        combine=entry.flag("combine") is not False,
        missing=entry.text("missing", empty=False) or "",
        file=file,
    )
    entry.close()
    _check(entry, one)
    return one


def read_changes(entry: Entry) -> Hypothesis:
    """The table `changes`: what a catalog may say. The rest is left to the caller."""
    changes = entry.inner("changes")
    precision = changes.text("precision")
    if precision is not None and canonical(precision) not in PRECISIONS:
        changes.bad(f"unknown precision {quote(precision)}", hint(precision, PRECISIONS))
    made = Hypothesis(
        id="",
        title="",
        targets=(),
        axis="",
        opset=changes.integer("opset", *OPSETS),
        precision=None if precision is None else canonical(precision),
        build=read_build(changes) or {},
        engines=_engines(changes),
    )
    changes.close()
    return made


def _id(entry: Entry) -> str:
    name = entry.needed("id")
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if name and not (plain.isascii() and plain.isalnum() and len(name) <= LONGEST_ID):
        entry.bad(
            f"id {quote(name)} may hold letters, digits, '.', '-' and '_', at most {LONGEST_ID}"
        )
    return name


def _targets(entry: Entry, targets: Targets) -> tuple[str, ...]:
    globs = entry.texts("targets") or ()
    if not globs:
        entry.bad("targets is missing", 'for instance targets = ["qnn_npu"], or ["*"]')
    return tuple(looked_up(entry.where, globs, targets.label_or_glob, entry.problems))


def _compiled(entry: Entry) -> str:
    """True is any profile of the target; a text is a glob over profiles."""
    value = entry.data.get("compiled")
    if isinstance(value, bool):
        entry.known.append("compiled")
        return "*" if value else ""
    text = entry.text("compiled", empty=False) or ""
    if problem := glob_fault(text):
        entry.bad(f"compiled: {problem}")
    return text


def _engines(changes: Entry) -> dict[str, dict[str, Any]]:
    """The tables of single engines, whose options that engine must have."""
    found = {}
    for engine in OF_ENGINES:
        options = read_build(changes, engine)
        if options is None:
            continue
        found[engine] = options
        if fault := build_options.fault(engine, options):
            changes.bad(*fault)
    return found


def _guards(entry: Entry) -> Guards:
    inner = entry.inner("guards")
    made = Guards(
        needs=inner.several("needs", OPERATORS, "operator") or (),
        not_with=inner.several("not_with", OPERATORS, "operator") or (),
        candidates=inner.several("candidates", CANDIDATES, "candidate") or (),
        share=_shares(inner),
        architectures=inner.globs("architectures") or (),
        not_for=inner.globs("not_for") or (),
    )
    inner.close()
    return made


def _shares(entry: Entry) -> dict[str, tuple[float, float]]:
    found = {}
    for name, value in (entry.table("share") or {}).items():
        if name not in OPERATORS:
            entry.bad(f"unknown operator {quote(name)} in share", hint(name, OPERATORS))
        elif not _range(value):
            entry.bad(f"share of {name} must be [least, greatest] between 0 and 1")
        else:
            found[name] = (float(value[0]), float(value[1]))
    return found


def _range(value: Any) -> bool:
    numbers = isinstance(value, list) and len(value) == 2
    numbers = numbers and all(type(item) in (int, float) for item in value)
    return numbers and 0 <= value[0] <= value[1] <= 1


def _check(entry: Entry, one: Hypothesis) -> None:
    axes = {text.partition("=")[0] for text in one.settings}
    if one.missing and not one.engines:
        if axes:
            entry.bad("missing says that it cannot be tried, so it takes no changes")
    elif not axes:
        entry.bad("it changes nothing", "give changes, runtime or compiled, or say what is missing")
    elif one.axis and one.axis not in axes:
        entry.bad(f"axis {one.axis} is not one of what it changes: {', '.join(sorted(axes))}")


LEVELS = ("disabled", "basic", "extended", "all")
"""ONNX Runtime's graph optimization level while it opens a model."""

WITHOUT_LEVEL = frozenset({"OpenVINOExecutionProvider"})
"""Providers that this product opens without ONNX Runtime."""


def read_session(entry: Entry, providers: Mapping[str, str]) -> dict[str, str]:
    """The table `runtime` of a hypothesis: `level`, and options of the provider.

    Only options that change how fast a model runs. One that changes what is computed (half
    precision, for instance) would bypass the accuracy check, which opens models without options.
    `providers`: what its targets run on, by label. An option must exist on all of them.
    """
    inner = entry.inner("runtime")
    tables = {label: _options(providers[label]) for label in sorted(providers)}
    first, *others = tables.values() or (_options(""),)
    common = [name for name in first if all(name in one for one in others)]
    found: dict[str, str] = {}
    for name, value in inner.data.items():
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if name not in common:
            without = (label for label, one in tables.items() if name not in one)
            told = f"{next(without, 'the runtime')} has no option {quote(name)}"
            inner.bad(told, hint(name, common))
        elif first[name] and text not in first[name]:
            inner.bad(f"{name} cannot be {quote(value)}", hint(text, first[name]))
        elif not first[name] and not (text.isascii() and text.isdigit()):
            inner.bad(f"{name} must be a whole number, not {quote(value)}")
        else:
            found[name] = text
    return found


def _options(provider: str) -> Mapping[str, tuple[str, ...]]:
    """The options that a model may be opened with, and their values."""
    level = {} if provider in WITHOUT_LEVEL else {"level": LEVELS}
    return {**level, **SESSION_OPTIONS.get(provider, {})}
