"""Catalogs: the models to build, from our TOML, from a registry, or packaged under a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix.entry import SOURCE_KEYS, read_model
from matrix.errors import PlanError, Problem, UsageError
from matrix.model import Model
from matrix.nearest import hint, quote, tag
from matrix.reader import Entry, parse_toml, read_text, tables
from matrix.registry import read_registry
from matrix.targets import Targets, load_targets

DATA = Path(__file__).parent / "data"
NOT_INHERITED = ("id", *SOURCE_KEYS)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The matrix's first axis: models in order, each (id, task) once."""

    name: str
    models: tuple[Model, ...]
    path: Path


def packaged() -> tuple[str, ...]:
    """The catalogs that come with modelmill."""
    return tuple(sorted(path.stem for path in DATA.glob("*.toml") if path.stem != "targets"))


def load_catalog(name: str | Path, *, base: Path, targets: Targets | None = None) -> Catalog:
    """Read a catalog by its packaged name or its file; a relative file starts at `base`.

    Raises `PlanError` with everything that is wrong with it, all at once.
    """
    path = _find(str(name), base)
    text = read_text(path)
    problems: list[Problem] = []
    if path.suffix.lower() == ".json":
        models = read_registry(text, path, problems)
    else:
        models = _read_toml(text, path, targets or load_targets(), problems)
    if not models and not problems:
        problems.append(Problem(path.name, "holds no model"))
    problems += _duplicates(models)
    if problems:
        raise PlanError(problems)
    return Catalog(path.stem, tuple(models), path)


def _find(name: str, base: Path) -> Path:
    if name in packaged():
        return DATA / f"{name}.toml"
    if name.lower().endswith((".toml", ".json")):
        return base / name
    raise UsageError(
        f"no catalog is called {quote(name)}",
        hint=f"{hint(name, packaged())}; or give a .toml or .json file",
    )


def _read_toml(text: str, path: Path, targets: Targets, problems: list[Problem]) -> list[Model]:
    top = Entry(parse_toml(text, path.name), path.name, problems)
    defaults = _defaults(top.table("defaults") or {}, path, targets, problems)
    top.known.append("model")
    top.close()
    models = []
    rows = top.data.get("model", [])
    for number, table in tables(rows, f"{path.name}: model", problems):
        where = f"{path.name}: model {number}{tag(table.get('id'))}"
        model = read_model(Entry(_inherit(defaults, table), where, problems), path.parent, targets)
        if model:
            models.append(model)
    return models


def _defaults(
    table: dict[str, Any], path: Path, targets: Targets, problems: list[Problem]
) -> dict[str, Any]:
    """The defaults, checked by themselves: a fault in them is told once, not for every model."""
    found = [
        Problem(f"{path.name}: defaults", f"{key} cannot be a default")
        for key in NOT_INHERITED
        if key in table
    ]
    own = {key: value for key, value in table.items() if key not in NOT_INHERITED}
    probe = {"task": "", **own, "id": "defaults"}
    read_model(Entry(probe, f"{path.name}: defaults", found), path.parent, targets)
    problems += found
    # A task is kept: without it, every model would be blamed for lacking one.
    return {key: value for key, value in own.items() if key == "task"} if found else own


def _inherit(defaults: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """A model over the defaults. Targets and shapes are joined, the model's first and stronger."""
    merged = {**defaults, **table}
    for key in ("target", "shapes"):
        own, inherited = table.get(key), defaults.get(key)
        if isinstance(own, dict) and isinstance(inherited, dict):
            merged[key] = {**own, **{k: v for k, v in inherited.items() if k not in own}}
    if "revision" not in table and ("folder" in table or "random" in table):
        merged.pop("revision", None)
    return merged


def _duplicates(models: Iterable[Model]) -> list[Problem]:
    first: dict[tuple[str, str], Model] = {}
    found = []
    for model in models:
        other = first.setdefault((model.id, model.task), model)
        if other is not model:
            entry = other.where.partition(": ")[2]
            found.append(Problem(model.where, f"{model.name} is there already as {entry}"))
    return found
