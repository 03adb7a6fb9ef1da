"""Hypotheses: what a tuning tries, as data.

A hypothesis says in which way another build, or another way to open it, could be faster: `changes`
is what a catalog may say of a target (opset, precision, the table `build`), `runtime` what the
session is given, `compiled` whether the device's own compiler runs before. Engines that say the
same in other words have tables of their own in `changes`. Guards keep a hypothesis from models that
it does not suit. `missing` is the reason why an engine without such a table cannot try it: a tuning
lists it with that reason and never leaves it out in silence.

`settings` is the same as texts, `AXIS=VALUE`: the words in which findings speak of hypotheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matrix import build_options
from matrix.build_options import OF_ENGINES, read_build
from matrix.errors import PlanError, Problem, UsageError
from matrix.fusions import CANDIDATES, pass_name
from matrix.globs import matches
from matrix.model import Target
from matrix.nearest import hint, quote, tag
from matrix.operators import OPERATORS
from matrix.policy import PRECISIONS, canonical
from matrix.reader import Entry, parse_toml, read_text, tables
from matrix.session_options import read_session
from matrix.targets import OPSETS, Targets, load_targets

DATA = Path(__file__).parent / "data" / "hypotheses"
AXES = (
    "opset", "level", "pass", "layout", "quantization", "precision", "runtime", "compiled",
)  # fmt: skip
LAYOUTS = ("nhwc", "nchwc")
"""Passes that change the order of dimensions and nothing else."""
LONGEST_ID = 64
_HEAD = re.compile(r"\s*\[\[\s*hypothesis\s*\]\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What a model must be like; an empty guard asks nothing."""

    needs: tuple[str, ...] = ()
    """Operators that must all be in the graph."""
    not_with: tuple[str, ...] = ()
    """Operators of which none may be in it."""
    candidates: tuple[str, ...] = ()
    """Fusion candidates of which one must be in it (`matrix.fusions`)."""
    share: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The least and the greatest share of all nodes, by operator."""
    architectures: tuple[str, ...] = ()
    not_for: tuple[str, ...] = ()
    """Globs over architectures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One thing to try."""

    id: str
    title: str
    targets: tuple[str, ...]
    """Globs over labels."""
    axis: str
    opset: int | None = None
    precision: str | None = None
    build: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further build options by engine, and engines that are not named cannot try it; empty: all
    can."""
    runtime: Mapping[str, str] = field(default_factory=dict)
    """`level` of ONNX Runtime when it opens the model, and options of the provider."""
    compiled: str = ""
    """A glob over device profiles; empty: the portable model."""
    guards: Guards = field(default_factory=Guards)
    combine: bool = True
    """Whether it may be combined with others that were confirmed."""
    missing: str = ""
    """Why it cannot be tried; with `engines`: by the others."""
    file: str = ""

    def applies(self, target: Target) -> bool:
        """Whether it is about this target."""
        return matches(target.label, self.targets)

    @property
    def settings(self) -> tuple[str, ...]:
        """As findings name it: `opset=21`, `pass=gelu`."""
        return tuple(dict.fromkeys(_settings(self)))

    def for_engine(self, engine: str) -> Hypothesis:
        """With the build options of one engine; `missing` says whether it has them."""
        if self.engines and engine not in self.engines:
            told = self.missing or f"the engine {engine} has nothing like it"
            return replace(self, engines={}, missing=told)
        build = {**self.build, **self.engines.get(engine, {})}
        fault = build_options.fault(engine, build) if build else None
        missing = fault[0] if fault else "" if self.engines else self.missing
        return replace(self, build=build, engines={}, missing=missing)


def read_space(paths: Iterable[Path], targets: Targets | None = None) -> dict[str, Hypothesis]:
    """The hypotheses of these files by id; one in a later file takes the place of an earlier one.

    Raises `PlanError` with every fault of every file.
    """
    problems: list[Problem] = []
    found: dict[str, Hypothesis] = {}
    known = targets or load_targets()
    for path in paths:
        try:
            text = read_text(path)
            data = parse_toml(text, path.name)
        except PlanError as error:
            problems += error.problems
            continue
        top = Entry(data, path.name, problems)
        top.known.append("hypothesis")
        top.close()
        given = data.get("hypothesis", [])
        lines = _lines(text, len(given) if isinstance(given, list) else 0)
        rows = tables(given, f"{path.name}: hypothesis", problems)
        own: set[str] = set()
        for number, table in rows:
            where = f"{path.name}: {lines[number - 1]}hypothesis {number}{tag(table.get('id'))}"
            entry = Entry(table, where, problems)
            one = _hypothesis(entry, path.name, known)
            if one.id in own:
                entry.bad(f"id {quote(one.id)} is there twice")
            own.add(one.id)
            found[one.id] = one
    if problems:
        raise PlanError(problems, "the hypotheses")
    return found


def _lines(text: str, count: int) -> list[str]:
    """`line 12: ` for each table; empty where tables are written in another way."""
    heads = [number for number, line in enumerate(text.splitlines(), 1) if _HEAD.match(line)]
    return [f"line {number}: " for number in heads] if len(heads) == count else [""] * count


def shipped() -> list[Path]:
    """The files that come with modelmill."""
    return sorted(DATA.glob("*.toml"))


def chosen(space: Mapping[str, Hypothesis], names: Sequence[str]) -> dict[str, Hypothesis]:
    """Those that globs over ids name; all without any. Raises `UsageError` for one that is none."""
    if not names:
        return dict(space)
    for name in names:
        if not any(matches(one, [name]) for one in space):
            raise UsageError(f"no hypothesis is called {quote(name)}", hint=hint(name, space))
    return {name: one for name, one in space.items() if matches(name, names)}


def _settings(one: Hypothesis) -> Iterator[str]:
    if one.opset is not None:
        yield f"opset={one.opset}"
    if one.precision is not None:
        yield f"precision={one.precision}"
    for options in (one.build, *one.engines.values()):
        for name, value in options.items():
            yield from _build_settings(name, value)
    for name, value in one.runtime.items():
        yield f"runtime={name}:{value}"
    if one.compiled:
        yield f"compiled={one.compiled}"


def _build_settings(name: str, value: Any) -> Iterator[str]:
    match name:
        case "optimization":
            yield f"level={value}"
        case "passes" | "flags":
            yield from (_pass_setting(item, "") for item in value)
        case "without_passes" | "without_flags":
            yield from (_pass_setting(item, "no_") for item in value)
        case "analyzer":
            yield f"pass={'' if value else 'no_'}analyzer"
        case "float_ops":
            yield from (f"quantization=float:{item}" for item in value)
        case _:
            text = str(value).lower() if isinstance(value, bool) else value
            yield f"quantization={name}:{text}"


def _pass_setting(name: str, prefix: str) -> str:
    short = pass_name(name)
    axis = "layout" if short in LAYOUTS else "pass"
    return f"{axis}={prefix}{short}"


def _hypothesis(entry: Entry, file: str, targets: Targets) -> Hypothesis:
    name = _id(entry)
    labels = _targets(entry, targets)
    rows = {row.label: row.provider for row in targets if matches(row.label, labels)}
    one = replace(
        read_changes(entry),
        id=name,
        title=entry.text("title", required=True, empty=False) or "",
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
    changes = Entry(entry.table("changes") or {}, f"{entry.where}: changes", entry.problems)
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
    name = entry.text("id", required=True, empty=False) or ""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if name and not (plain.isascii() and plain.isalnum() and len(name) <= LONGEST_ID):
        entry.bad(f"id {quote(name)} may hold letters, digits, '.', '-' and '_', {LONGEST_ID} of"
                  " them at most")  # fmt: skip
    return name


def _targets(entry: Entry, targets: Targets) -> tuple[str, ...]:
    globs = entry.texts("targets") or ()
    if not globs:
        entry.bad("targets is missing", 'for instance targets = ["qnn_npu"], or ["*"]')
    found = []
    for pattern in globs:
        try:
            rows = targets.match(pattern)
        except UsageError as error:
            entry.bad(error.message, error.hint)
            continue
        found.append(rows[0].label if len(rows) == 1 else pattern)
    return tuple(found)


def _compiled(entry: Entry) -> str:
    """True is any profile of the target; a text is a glob over profiles."""
    value = entry.data.get("compiled")
    if isinstance(value, bool):
        entry.known.append("compiled")
        return "*" if value else ""
    return entry.text("compiled", empty=False) or ""


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
    inner = Entry(entry.table("guards") or {}, f"{entry.where}: guards", entry.problems)
    made = Guards(
        needs=_named(inner, "needs", OPERATORS, "operator"),
        not_with=_named(inner, "not_with", OPERATORS, "operator"),
        candidates=_named(inner, "candidates", CANDIDATES, "candidate"),
        share=_shares(inner),
        architectures=inner.texts("architectures") or (),
        not_for=inner.texts("not_for") or (),
    )
    inner.close()
    return made


def _named(entry: Entry, key: str, valid: Iterable[str], kind: str) -> tuple[str, ...]:
    given = entry.texts(key) or ()
    for name in given:
        if name not in valid:
            entry.bad(f"unknown {kind} {quote(name)} in {key}", hint(name, valid))
    return given


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
        entry.bad(f"axis {one.axis} is none of what it changes: {', '.join(sorted(axes))}")
