"""Catalogs of models to build: our TOML, a JSON registry, or one that comes with modelmill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matrix import build_options, zoo
from matrix.abilities import Abilities, abilities_of, aliases
from matrix.coverage import BUILDABLE, Json, cover
from matrix.datasets import Datasets, read_shared, shared, unused
from matrix.entry import SOURCE_KEYS, read_model
from matrix.errors import PlanError, Problem, UsageError
from matrix.model import Model
from matrix.nearest import hint, quote
from matrix.reader import Entry, parse_toml, read_text
from matrix.registry import read_registry, unbuildable
from matrix.targets import Targets, load_targets

DATA = Path(__file__).parent / "data"
NOT_INHERITED = ("id", *SOURCE_KEYS)
REGISTRY = ".json"
NO_MODEL = "holds no model"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The models of the matrix in order, each (id, task) once."""

    name: str
    models: tuple[Model, ...]
    path: Path
    notices: tuple[str, ...] = ()
    """Entries that were left out, and why."""


def packaged() -> tuple[str, ...]:
    """The catalogs that come with modelmill."""
    names = {path.stem for path in DATA.glob("*.toml")}
    return tuple(sorted(names - {"targets", "profiles"}))


def load_catalog(
    name: str | Path,
    *,
    base: Path,
    targets: Targets | None = None,
    engine: str | None = None,
    skip_bad: bool = False,
    config_of: Callable[[Model], Json | None] = lambda _: None,
) -> Catalog:
    """Read a catalog by its packaged name or its path, which may be relative to `base`.

    With an `engine`, tasks and architectures that it does not know are problems too; `config_of`
    reads the config.json of a model where this machine has it. Raises `PlanError` with all problems
    of the catalog at once; with `skip_bad`, entries that have problems are left out instead, each
    with a notice.
    """
    path = find_catalog(str(name), base)
    whole: list[Problem] = []
    bad: list[Problem] = []
    faults: list[str] = []
    abilities = abilities_of(engine) if engine else None
    if path == zoo.FILE:
        models = list(zoo.models())
        faults_of = ((model.where, _fault(engine, model)) for model in models)
        bad += [Problem(where, *fault) for where, fault in faults_of if fault]
    else:
        text = read_text(path, "give a .toml or .json file or the name of a packaged catalog")
        if path.suffix.lower() == REGISTRY:
            models = [_if_able(model, engine) for model in read_registry(text, path, bad, faults)]
        else:
            models = _read_toml(text, path, targets or load_targets(), engine, whole, bad)
    if abilities:
        models = [_covered(model, abilities, config_of) for model in models]
    models = _distinct(models, bad)
    models = [model for model in models if not _is_bad(model, bad)]
    if not models and not whole and (skip_bad or not bad):
        whole.append(Problem(path.name, "holds no model that can be built" if bad else NO_MODEL))
    if whole or (bad and not skip_bad):
        raise PlanError([*whole, *bad])
    notices = (*(f"left out: {problem}" for problem in bad), *faults, *_other_tasks(models))
    return Catalog(path.stem, tuple(models), path, notices)


def find_catalog(name: str, base: Path) -> Path:
    """The file of a packaged catalog, or of a path that may be relative. Raises `UsageError`."""
    if name in packaged():
        return DATA / f"{name}.toml"
    if name.lower().endswith((".toml", REGISTRY)):
        return base / name
    raise UsageError(
        f"no catalog is called {quote(name)}",
        hint=f"{hint(name, packaged())}; or give a .toml or .json file",
    )


def _read_toml(
    text: str,
    path: Path,
    targets: Targets,
    engine: str | None,
    whole: list[Problem],
    bad: list[Problem],
) -> list[Model]:
    """All models, with or without problems. `whole` gets problems of the file, `bad` of entries."""
    top = Entry(parse_toml(text, path.name), path.name, whole)
    defaults = _defaults(top.table("defaults") or {}, path, targets, whole)
    datasets = read_shared(top, path.parent, whole)
    top.known.append("model")
    top.close()
    models = []
    for entry in Entry(top.data, path.name, bad).rows("model", "id"):
        entry.data = inherit(defaults, entry.data, datasets)
        model = read_model(entry, path.parent, targets)
        if model is None:
            continue
        models.append(model)
        fault = None if model.overrides.skip else _fault(engine, model)
        if fault:
            entry.bad(*fault)
    whole += unused(path.name, datasets, (name for one in models for name in (one.group, one.task)))
    return models


def _defaults(
    table: dict[str, Any], path: Path, targets: Targets, problems: list[Problem]
) -> dict[str, Any]:
    """The defaults, checked separately: a fault in them is reported once, not for every model."""
    found = [
        Problem(f"{path.name}: defaults", f"{key} cannot be a default")
        for key in NOT_INHERITED
        if key in table
    ]
    own = {key: value for key, value in table.items() if key not in NOT_INHERITED}
    probe = {"task": "", **own, "id": "defaults"}
    read_model(Entry(probe, f"{path.name}: defaults", found), path.parent, targets)
    problems += found
    # The task stays: without it, every model would be reported as lacking one.
    return {key: value for key, value in own.items() if key == "task"} if found else own


def inherit(
    defaults: Mapping[str, Any], table: Mapping[str, Any], datasets: Datasets
) -> dict[str, Any]:
    """A model over the defaults, with the dataset of its group or task if it has none.

    Targets and shapes are merged; the model's come first and win.
    """
    merged = {**defaults, **table}
    if "dataset" not in merged and (found := shared(merged, datasets)):
        merged["dataset"] = dict(found)
    for key in ("target", "shapes", "build"):
        own, inherited = table.get(key), defaults.get(key)
        if isinstance(own, dict) and isinstance(inherited, dict):
            merged[key] = {**own, **{k: v for k, v in inherited.items() if k not in own}}
    elsewhere = set(table) & {"folder", "random", "onnx", "file"}
    if "revision" not in table and elsewhere and "hub" not in table:
        merged.pop("revision", None)
    return merged


def _is_bad(model: Model, bad: Iterable[Problem]) -> bool:
    """Whether the entry of a model, or one of its tables, has a problem."""
    return any(
        item.where == model.where or item.where.startswith(f"{model.where}: ") for item in bad
    )


def _fault(engine: str | None, model: Model) -> tuple[str, str] | None:
    """Why the engine cannot build a model as the catalog asks, and what to do about it."""
    if engine is None:
        return None
    abilities = abilities_of(engine)
    if abilities and (found := abilities.fault(model)):
        return found
    tables = (model.overrides, *model.per_target.values())
    faults = (build_options.fault(engine, one.build) for one in tables if one.build)
    return next(filter(None, faults), None)


def _if_able(model: Model, engine: str | None) -> Model:
    """Others maintain the registry, so a model that cannot be built is skipped with the reason."""
    fault = _fault(engine, model)
    return model if fault is None or model.overrides.skip else unbuildable(model, fault[0])


def _covered(
    model: Model, abilities: Abilities, config_of: Callable[[Model], Json | None]
) -> Model:
    """With the task that it is exported for, or skipped with the reason why it cannot be built."""
    if model.overrides.skip or not model.task:
        return model
    found = cover(model, abilities.engine, config_of(model))
    if found.verdict not in BUILDABLE:
        return unbuildable(model, found.why)
    if not model.source.file and found.task != abilities.synonyms.get(model.task, model.task):
        return replace(model, exported_as=found.task)
    return model


def _other_tasks(models: Iterable[Model]) -> list[str]:
    """One line per task that is exported for another one."""
    counts = Counter((one.task, one.exported_as) for one in models if one.exported_as)
    return [
        f"{task} is exported for {other}: {aliases()[task].why} ({count} model{'s' * (count > 1)})"
        for (task, other), count in counts.items()
    ]


def _distinct(models: Iterable[Model], bad: list[Problem]) -> list[Model]:
    """The first of the models that share id and task; the others are problems."""
    first: dict[tuple[str, str], Model] = {}
    for model in models:
        other = first.setdefault((model.id, model.task), model)
        if other is not model:
            entry = other.where.partition(": ")[2]
            bad.append(Problem(model.where, f"{model.name} has the same id and task as {entry}"))
    return list(first.values())
