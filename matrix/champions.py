"""Champions: the settings that a tuning has found best for a model on a target, with their proof.

A file of champions is laid over a catalog: what it changes is added to what the catalog says, as
when it was tried. A champion whose model or target is not there, or that is of another engine, is
reported and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from matrix.build_options import OF_ENGINES
from matrix.catalog import Catalog
from matrix.cellid import cell_id
from matrix.digest import value_digest
from matrix.errors import PlanError, Problem, UsageError
from matrix.hypotheses import Hypothesis
from matrix.model import Model, SourceKind, Target
from matrix.nearest import hint, quote
from matrix.overlay import Unfit, overlaid, with_overrides
from matrix.policy import overrides_of
from matrix.reader import Entry, read_rows
from matrix.space import read_changes, read_session
from matrix.targets import Targets

Key = tuple[str, str, str]
"""Model, task and target."""
_BUILDING = ("precision", "opset", "shapes", "build")
_POLICY = (
    "precision", "auto", "static_shapes", "optimization", "quantizer", "blocked_passes",
    "blocked_ops",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a champion rests on; gains are percent of the baseline's time."""

    tuning: str
    """Its name."""
    trial: str
    """The key of the trial, which names its hypotheses."""
    comparison: str
    """The digest of the comparison that confirmed it."""
    artifact: str
    """The digest of the models that were measured."""
    baseline: str
    """The digest of what the catalog said (`baseline_digest`)."""
    gain: float
    low: float
    high: float
    emulated: bool = False
    """An emulator was measured: that proves nothing about a device."""
    at: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of what built it."""
    runtime: Mapping[str, str] = field(default_factory=dict)
    """provider, device and version of what it was measured on."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """name, processor and system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The best known build of a model for a target."""

    model: str
    task: str
    target: str
    engine: str
    changes: Hypothesis
    """What it changes, as the engine takes it; `compiled` is the label of a device profile."""
    proof: Proof

    @property
    def key(self) -> Key:
        """Of two champions with the same key, the later one counts."""
        return self.model, self.task, self.target

    @property
    def cell(self) -> str:
        """As messages name it."""
        return cell_id(self.model, self.task, self.target)

    @property
    def told(self) -> str:
        """In one line."""
        proof = self.proof
        numbers = f"{proof.gain:+.1f} % [{proof.low:+.1f}, {proof.high:+.1f}]"
        return f"champion of {self.cell} ({', '.join(self.changes.settings)}; {numbers})"


def read_champions(path: Path, targets: Targets) -> dict[Key, Champion]:
    """The champions of a file. Raises `PlanError` with every fault."""
    problems: list[Problem] = []
    found: dict[Key, Champion] = {}
    for _path, entry in read_rows([path], "champion", "model", problems, "a tuning writes it"):
        one = _champion(entry, targets)
        if one.key in found:
            entry.bad(f"{one.cell} has a champion already")
        found[one.key] = one
    if problems:
        raise PlanError(problems, "the champions")
    return found


def baseline_digest(model: Model, target: Target) -> str:
    """What the catalog and the target say about a build, as far as it is compared later."""
    own = overrides_of(model, target)
    source = asdict(model.source)
    if model.source.kind is SourceKind.FOLDER:
        del source["ref"]  # another machine has it elsewhere
    dataset = {name: value for name, value in (model.dataset or {}).items() if name != "path"}
    return value_digest(
        {
            "catalog": {name: getattr(own, name) for name in _BUILDING},
            "source": source,
            "dataset": dataset,
            "target": {name: getattr(target, name) for name in _POLICY},
        }
    )


def with_champions(
    catalog: Catalog,
    champions: Iterable[Champion],
    targets: Targets,
    *,
    engine: str,
    profiles: Sequence[str],
) -> Catalog:
    """The catalog with what the champions change, and a notice for each of them.

    `profiles`: what the sweep compiles for. Raises `PlanError` for what the catalog excludes.
    """
    models = {(model.id, model.task): model for model in catalog.models}
    rows = {row.label: row for row in targets}
    notices: list[str] = []
    problems: list[Problem] = []
    for one in champions:
        model = models.get((one.model, one.task))
        if model is None:
            known = [f"{model}:{task}" for model, task in models]
            near = hint(f"{one.model}:{one.task}", known)
            notices.append(f"{one.told} is not used: the catalog has no such model ({near})")
        elif one.engine != engine:
            notices.append(f"{one.told} is not used: it belongs to the engine {one.engine}")
        else:
            try:
                target = rows[one.target]
                changed = overlaid(overrides_of(model, target), one.changes, target)
                models[one.model, one.task] = with_overrides(model, target.label, changed)
            except Unfit as error:
                problems.append(Problem(one.told, error.message, "tune it again"))
                continue
            notices += _remarks(one, model, target, profiles)
    if problems:
        raise PlanError(problems, "the champions")
    made = tuple(models[model.id, model.task] for model in catalog.models)
    return replace(catalog, models=made, notices=(*catalog.notices, *notices))


def unlike(champion: Champion, manifest: Mapping[str, Any]) -> str:
    """How a package differs from what its champion says; empty if it does not.

    The manifest of the package has the settings that were really applied.
    """
    policy, changes = _table(manifest, "policy"), champion.changes
    build = _table(policy, "build")
    if champion.engine != (made_by := _table(manifest, "engine").get("name")):
        return f"it was built by {made_by}, not by {champion.engine}"
    for name in ("opset", "precision"):
        wanted = getattr(changes, name)
        if wanted and policy.get(name) != wanted:
            return f"its {name} is {policy.get(name)}, not {wanted}"
    for name, wanted in changes.build.items():
        has = build.get(name)
        if not (set(wanted) <= set(has or ()) if isinstance(wanted, list) else has == wanted):
            return f"its build option {name} is {has}, not {wanted}"
    compiled = _table(manifest, "profile").get("label", "")
    if changes.compiled and compiled != changes.compiled:
        return f"it is compiled for {compiled or 'no device'}, not for {changes.compiled}"
    return ""


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _remarks(one: Champion, model: Model, target: Target, profiles: Sequence[str]) -> list[str]:
    """What the user should know beside the fact that it is used."""
    found = [f"{one.told} is used"]
    if baseline_digest(model, target) != one.proof.baseline:
        found.append(f"{one.told} is stale: the catalog has changed what it was compared with")
    if one.proof.emulated:
        found.append(f"{one.told} was measured on an emulator, which proves nothing")
    if (label := one.changes.compiled) and label not in profiles:
        found.append(f"{one.told} is compiled: --compile {label} makes it")
    if one.changes.runtime:
        options = ", ".join(f"{name}={value}" for name, value in one.changes.runtime.items())
        found.append(f"{one.told} is opened with {options}, which no package contains")
    return found


def _champion(entry: Entry, targets: Targets) -> Champion:
    label = entry.needed("target")
    rows = {row.label: row.provider for row in targets}
    if label and label not in rows:
        entry.bad(f"unknown target {quote(label)}", hint(label, rows))
    proof = _proof(entry)
    own = {label: rows[label]} if label in rows else {}
    made = Champion(
        model=entry.needed("model"),
        task=entry.text("task", required=True) or "",
        target=label,
        engine=entry.choice("engine", tuple(OF_ENGINES), required=True) or "",
        changes=replace(
            read_changes(entry),
            id=proof.trial,
            title=proof.trial,
            targets=(label,),
            runtime=read_session(entry, own),
            compiled=entry.text("compiled", empty=False) or "",
        ),
        proof=proof,
    )
    entry.close()
    _check(entry, made)
    return made


def _check(entry: Entry, made: Champion) -> None:
    if not made.changes.settings:
        entry.bad("it changes nothing", "a baseline that is best needs no champion")
    elif made.engine and (reason := made.changes.for_engine(made.engine).missing):
        entry.bad(reason)


def _proof(champion: Entry) -> Proof:
    table = champion.table("proof")
    if table is None and "proof" not in champion.data:
        champion.bad("proof is missing")
    entry = Entry(table or {}, f"{champion.where}: proof", champion.problems if table else [])
    made = entry.record(Proof)
    entry.close()
    if not made.low <= made.gain <= made.high:
        entry.bad(f"gain {made.gain:g} is not between {made.low:g} and {made.high:g}")
    return made


def champion_for(champions: Mapping[Key, Champion], wanted: Key) -> Champion:
    """The champion of that model and target. Raises `UsageError`."""
    if wanted in champions:
        return champions[wanted]
    raise UsageError(
        f"there is no champion of {quote(cell_id(*wanted))}",
        hint=hint(cell_id(*wanted), [one.cell for one in champions.values()]),
    )
