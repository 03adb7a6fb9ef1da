"""Package names and versions under which a plan is published, and the rules for them.

    0.0.0-<stamp>-<ep>-<device>-<model-slug>[-<task>][-<precision>][-<profile>]     a cell
    0.0.0-<stamp>-export-<model-slug>[-<task>]                          a model's export
    0.0.0-<stamp>[-rN]                                                  the sweep index

A version can never be used again, so the plan refuses every name that the feed would refuse, by
the limits that the feed declares. Slugs are unique by construction (see `matrix.slugs`).
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

from matrix.cellid import LONGEST_TASK
from matrix.errors import Problem
from matrix.model import EXPORT, Cell, Model
from matrix.nearest import quote
from matrix.slugs import HASHES, MODEL_LIMIT, Names, slug

MAX_STAMP = 40
INDEX = "index"
FIELDS = ("model", "task")

_REVISION = re.compile(r"r[0-9]+")


@dataclass(frozen=True, slots=True)
class NameRule:
    """How a name may look."""

    what: str
    """What it names, for messages."""
    pattern: re.Pattern[str]
    """The groups that it captures are numbers."""
    form: str
    """The pattern in words, after "must be"."""
    longest: int
    largest: int | None = None
    """The largest number that a captured group may be."""

    def problem(self, name: str) -> str | None:
        """Why the feed would refuse the name; None: it would not."""
        if len(name) > self.longest:
            return f"{self.what} {quote(name)} is longer than {self.longest} characters"
        match = self.pattern.fullmatch(name)
        if not match:
            return f"{self.what} {quote(name)} must be {self.form}"
        largest = self.largest
        if largest is not None and any(int(part) > largest for part in match.groups()):
            return f"{self.what} {quote(name)} has a number above {largest}"
        return None


@dataclass(frozen=True, slots=True)
class Limits:
    """The rules of one feed."""

    package: NameRule
    version: NameRule
    versions: int
    """Of one package, over all time: deleted ones count."""


def stamp_problems(stamp: str, labels: tuple[str, ...]) -> list[Problem]:
    """Why a stamp, as the user wrote it, cannot name a batch."""
    where, text = "stamp", slug(stamp)
    if not text:
        return [Problem(where, f"{quote(stamp)} has no letter or digit", "e.g. 20260609")]
    if len(text) > MAX_STAMP:
        return [Problem(where, f"{quote(text)} is longer than {MAX_STAMP} characters")]
    found = []
    if text.isdigit() and text[0] == "0" and text != "0":
        found.append(Problem(where, f"{quote(text)} is a number with a leading zero", f"b{text}?"))
    # Versions of all batches share one list; with these words, one could be another batch's.
    words = text.split("-")
    clash = [word for word in words[1:] if _REVISION.fullmatch(word) or word in {INDEX, EXPORT}]
    clash += [label for label in map(slug, labels) if f"-{label}-" in f"{text}-"]
    if clash:
        part = f"{quote(text)} contains the reserved part {quote(clash[0])}"
        found.append(Problem(where, part, "choose a stamp without it"))
    return found


def template_problems(template: str, limits: Limits) -> list[Problem]:
    """Why a package template cannot be used."""

    def fault(what: str, advice: str = "") -> list[Problem]:
        return [Problem("package", f"{quote(template)} {what}", advice)]

    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as err:
        return fault(f"is not a valid template: {err}", "e.g. modelmill-{model}")
    fields = [field for _, field, _, _ in parts if field is not None]
    if any(spec or conversion for _, _, spec, conversion in parts):
        return fault("may contain only plain fields", "{model}, {task}")
    wrong = [field for field in fields if field not in FIELDS]
    if wrong:
        return fault(f"has the unknown field {{{wrong[0]}}}", "there are {model} and {task}")
    if fields and "model" not in fields:
        return fault("lacks {model}", "or use one fixed name")
    room = max(HASHES[0], model_room(template, limits))
    problem = limits.package.problem(render(template, "m" * room, "t" * LONGEST_TASK))
    return fault(f"does not make a package name: {problem}") if problem else []


def model_room(template: str, limits: Limits) -> int:
    """How many characters a package name leaves for the model next to the longest task."""
    rest = len(render(template, "", "t" * LONGEST_TASK))
    return min(MODEL_LIMIT, limits.package.longest - rest)


def render(template: str, model: str, task: str) -> str:
    """The package of a model. An empty task leaves no separator behind."""
    name = template.format(model=model, task=task)
    return re.sub(r"([-_.])[-_.]+", r"\1", name).strip("-_.") if not task else name


@dataclass(frozen=True, slots=True)
class Namer:
    """Gives every cell of a plan its package and version."""

    stamp: str
    """Already a slug."""
    template: str
    names: Names

    def package(self, model: Model) -> str:
        """The package of all cells of a model."""
        return render(self.template, self.names.models[model.id], slug(model.task))

    def version(self, cell: Cell) -> str:
        """The version of a cell."""
        words = (cell.policy.shown, cell.profile.label if cell.profile else None)
        tail = "".join(f"-{slug(word)}" for word in words if word)
        name = self.names.entries[cell.model.name]
        return f"0.0.0-{self.stamp}-{slug(cell.target.label)}-{name}{tail}"

    def export_version(self, model: Model) -> str:
        """The version of a model's export."""
        return f"0.0.0-{self.stamp}-{EXPORT}-{self.names.entries[model.name]}"


def index_name(template: str, stamp: str, revision: int = 1) -> tuple[str, str]:
    """Package and version of the index of a batch; a resumed sweep that adds cells counts up."""
    again = f"-r{revision}" if revision > 1 else ""
    package = render(template, INDEX, "")
    fixed = "{model}" not in template
    return package, f"0.0.0-{stamp}-{INDEX}{again}" if fixed else f"0.0.0-{stamp}{again}"
