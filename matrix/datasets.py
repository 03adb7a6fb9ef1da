"""What a catalog says of a model's samples: a `dataset`, or why synthetic values are enough.

    dataset = { path = "lines.jsonl", columns = { text = "sentence" } }
    samples = { kind = "synthetic", reason = "the model takes readings of a private sensor" }

A table `[dataset.NAME]` at the top of a catalog serves the models of that group or task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matrix.errors import Problem
from matrix.nearest import hint, quote
from matrix.reader import Entry

SUFFIXES = (".npz", ".jsonl", ".csv", ".parquet")
"""Of files; a folder holds images or sounds."""
ROLES = ("text", "text_pair", "question", "context")
"""What a column of texts can be."""
CHANNELS = ("rgb", "bgr")
SYNTHETIC = "synthetic"
LEAST, MOST = 8, 4096
"""Samples: with fewer, a verdict says nothing."""
Datasets = Mapping[str, Mapping[str, Any]]


def read_dataset(entry: Entry, folder: Path) -> dict[str, Any]:
    """A table `dataset`; a relative path in it starts at `folder`."""
    path = entry.needed("path")
    std = entry.numbers("std")
    if std and 0 in std:
        entry.bad("std has a zero, and pixels are divided by it")
    found = {
        "path": str(_existing(entry, path, folder)) if path else "",
        "samples": entry.integer("samples", LEAST, MOST),
        "columns": _columns(entry),
        "mean": entry.numbers("mean"),
        "std": std,
        "channels": entry.choice("channels", CHANNELS),
        "rate": entry.integer("rate", 1000, 192_000),
    }
    entry.close()
    return {key: value for key, value in found.items() if value is not None}


def read_synthetic(entry: Entry) -> dict[str, str]:
    """The key `samples`: empty, or that synthetic values are enough, with the reason."""
    given = entry.data.get("samples")
    if isinstance(given, str):
        entry.known.append("samples")
        example = f'samples = {{ kind = "{SYNTHETIC}", reason = "..." }}'
        entry.bad(f"samples = {quote(given)} lacks the reason", example)
        return {}
    inner = entry.inner("samples")
    if given is None:
        return {}
    kind, reason = inner.choice("kind", (SYNTHETIC,), required=True), inner.needed("reason")
    inner.close()
    return {"kind": kind, "reason": reason} if kind and reason else {}


def read_shared(top: Entry, folder: Path, problems: list[Problem]) -> dict[str, Mapping[str, Any]]:
    """The sound tables `[dataset.NAME]` of a catalog, as they are in the file."""
    sound = {}
    for name, table in (top.table("dataset") or {}).items():
        inner = Entry(table if isinstance(table, dict) else {}, f"{top.where}: dataset {name}", [])
        if isinstance(table, dict):
            read_dataset(inner, folder)
        else:
            inner.bad(f"must be a table, not {quote(table)}", f'[dataset."{name}"]')
        if inner.problems:
            problems += inner.problems
        else:
            sound[name] = table
    return sound


def shared(table: Mapping[str, Any], datasets: Datasets) -> Mapping[str, Any] | None:
    """The dataset of a model's group, else that of its task."""
    names = (table.get("group"), table.get("task"))
    found = (datasets.get(name) for name in names if isinstance(name, str))
    return next(filter(None, found), None)


def unused(where: str, datasets: Datasets, known: Iterable[str]) -> list[Problem]:
    """A problem for every table that no model of the catalog belongs to."""
    names = sorted(set(known) - {""})
    return [
        Problem(f"{where}: dataset {name}", "no model has this group or task", hint(name, names))
        for name in datasets
        if name not in names
    ]


def _existing(entry: Entry, path: str, folder: Path) -> Path:
    place = folder / path
    try:
        is_folder = place.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if not is_folder and place.suffix.lower() not in SUFFIXES:
        entry.bad(
            f"dataset {quote(path)} has none of the forms that can be read",
            f"give a {', '.join(SUFFIXES)} file, or a folder of images or sounds",
        )
    elif not is_folder:
        entry.existing("dataset", path, folder)
    return place


def _columns(entry: Entry) -> dict[str, str] | None:
    found = entry.words("columns")
    for name in found:
        if name not in ROLES:
            entry.bad(f"columns: unknown meaning {quote(name)}", hint(name, ROLES))
    return found or None
