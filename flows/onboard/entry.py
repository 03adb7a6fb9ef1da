"""The catalog entry of a model: from a catalog, or from what the user names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.plan.configs import config_of
from matrix.catalog import find_catalog, inherit
from matrix.cellid import model_fault
from matrix.datasets import read_shared
from matrix.entry import HUB_ID
from matrix.errors import UsageError
from matrix.model import Model, Source, SourceKind
from matrix.nearest import hint as nearest
from matrix.nearest import quote
from matrix.reader import Entry, parse_toml, plain, read_text
from matrix.slugs import slug

_PLAIN = {"id", "task", "model_type", "group", "priority", "tags"}
_SOURCES = {"hub", "folder", "random", "onnx", "revision", "dataset", "samples", "remote_code",
            "pickle", "new_head"}  # fmt: skip
_PATHS = (("folder",), ("onnx",), ("recipes",), ("dataset", "path"), ("verify", "inputs"),
          ("verify", "task", "dataset"))  # fmt: skip
"""Keys of an entry that name files beside its catalog."""

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user says of the model."""

    model: str
    task: str | None = None
    catalog: str | None = None
    """A catalog that has the entry; None: a new one is made."""
    dataset: Path | None = None
    metric: str = "accuracy"


def default_folder(model: str) -> Path:
    """Where the proof of a model goes, seen from the current folder."""
    name = slug(Path(model).resolve().name)
    return Path("onboarding") / (name or f"model-{hashlib.sha256(model.encode()).hexdigest()[:8]}")


def entry_of(wanted: Wanted, cwd: Path, folder: Path) -> Table:
    """The entry, with its paths as seen from the folder of the onboarding. Raises `UsageError`."""
    table, base = _listed(wanted, cwd) if wanted.catalog is not None else (_new(wanted, cwd), cwd)
    for keys in _PATHS:
        if keys != ("onnx",) or not {"hub", "folder"} & table.keys():
            _move(table, keys, base, folder)
    if wanted.dataset is not None:
        given = table.get("verify")
        task = {"dataset": _from(folder, cwd, wanted.dataset), "metric": wanted.metric}
        table["verify"] = {**(given if isinstance(given, dict) else {}), "task": task}
    return table


def _listed(wanted: Wanted, cwd: Path) -> tuple[Table, Path]:
    path = find_catalog(str(wanted.catalog), cwd)
    if path.suffix != ".toml":
        raise UsageError(f"--catalog {path} is not a TOML catalog", hint="give a .toml file")
    data = parse_toml(read_text(path), path.name)
    shared = data.get("defaults")
    defaults = shared if isinstance(shared, dict) else {}
    datasets = read_shared(Entry(data, path.name, []), path.parent, [])
    models = [one for one in data.get("model", ()) if isinstance(one, dict)]
    rows = [inherit(defaults, one, datasets) for one in models]
    found = [one for one in rows if one.get("id") == wanted.model]
    if wanted.task:
        found = [one for one in found if one.get("task") == wanted.task]
    if not found:
        hint = nearest(wanted.model, [str(one.get("id")) for one in rows])
        what = f"{wanted.model}:{wanted.task}" if wanted.task else wanted.model
        raise UsageError(f"{path.name} has no entry {quote(what)}", hint=hint)
    if len(found) > 1:
        tasks = ", ".join(str(one.get("task")) for one in found)
        raise UsageError(f"{path.name} has {quote(wanted.model)} for {tasks}", hint="add --task")
    if not plain(found[0]):
        text = f"{path.name}: the entry {quote(wanted.model)} has a value that cannot be kept"
        raise UsageError(text, hint="dates, nan and inf cannot")
    return dict(found[0]), path.parent


def _new(wanted: Wanted, cwd: Path) -> Table:
    path = cwd / Path(wanted.model).expanduser()
    if wanted.task is None:
        raise UsageError("a new entry needs a task", hint="add --task, e.g. text-classification")
    if path.is_dir():
        model = Model(_local_id(path), wanted.task, Source(SourceKind.FOLDER, str(path)))
        return {**_described(model), "folder": wanted.model}
    if wanted.model.startswith(".") or not HUB_ID.fullmatch(wanted.model):
        hint = "OWNER/NAME, a folder, or --catalog FILE with an id in it"
        raise UsageError(
            f"{quote(wanted.model)} is neither a folder nor an id of the Hub", hint=hint
        )
    source = Source(SourceKind.HUB, wanted.model)
    return _described(Model(wanted.model, wanted.task, source))


def _described(model: Model) -> Table:
    """A model's entry, with the architecture where this machine knows it: what the model is built
    with may depend on it."""
    named = (config_of(model) or {}).get("model_type")
    known = {"model_type": named} if named and isinstance(named, str) else {}
    return {"id": model.id, "task": model.task, **known}


def _local_id(folder: Path) -> str:
    """An id after the name of a folder, which may have blanks and signs that ids reserve."""
    name = folder.resolve().name or "model"
    return "local/" + "".join("-" if model_fault(f"a{char}") else char for char in name)


def _move(table: Table, keys: tuple[str, ...], base: Path, folder: Path) -> None:
    """Make a path relative to the folder; the tables on the way to it are copied."""
    *outer, last = keys
    for key in outer:
        inner = table.get(key)
        if not isinstance(inner, dict):
            return
        table[key] = table = dict(inner)
    if isinstance(text := table.get(last), str):
        table[last] = _from(folder, base, text)


def _from(folder: Path, base: Path, place: str | Path) -> str:
    path = base / Path(place).expanduser()
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        return path.absolute().as_posix()


def bare(table: Mapping[str, Any]) -> Table | None:
    """The entry without what it overrides; None: it overrides nothing."""
    kept = {key: value for key, value in table.items() if key in _PLAIN | _SOURCES}
    return None if len(kept) == len(table) else kept
