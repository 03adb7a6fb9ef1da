"""The JSON registry of the system that modelmill replaces, read as it is.

A registry is an array of objects with hf_id, task, model_type, group and priority. Its other
keys are carried in `Model.extra`; only those that decide what is built are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from matrix.entry import hub_source, read_id, read_task
from matrix.errors import Problem
from matrix.model import PRIORITIES, Model, Overrides, Source, SourceKind
from matrix.nearest import hint, quote, tag
from matrix.policy import NAMES, canonical
from matrix.reader import Entry, parse_json, plain, tables

INTEGER_TYPES = {"int8": "w8a8"}
"""In a registry int8 means 8-bit weights and activations; in our catalogs, weights only."""

FOREIGN_PRECISIONS = frozenset(
    {"int4", "int16"}
    | {f"w{weight}a{activation}" for weight in (4, 8, 16) for activation in (8, 16, 32)}
)
"""Precisions that only the replaced system builds; a valid entry with one of them is skipped."""

PREBUILT = "composite_onnx: the entry names ONNX files that exist, there is nothing to build"

_REFUSED = "cannot be built: "


def read_registry(
    text: str, path: Path, problems: list[Problem], notices: list[str]
) -> list[Model]:
    """The models of a registry, in its order.

    Others maintain the registry, so an entry that cannot be built becomes a model that is skipped
    with the reason, and each of its faults a notice: a selection may leave the model out. Only an
    entry without a usable id is a problem.
    """
    models = []
    for number, table in tables(parse_json(text, path.name), f"{path.name}: model", problems):
        where = f"{path.name}: model {number}{tag(table.get('hf_id'))}"
        found: list[Problem] = []
        model = _model(Entry(table, where, found))
        if model is None:
            problems += found
        elif found:
            models.append(unbuildable(model, "; ".join(one.message for one in found)))
            notices += (f"cannot be built: {problem}" for problem in found)
        else:
            models.append(model)
    return models


def unbuildable(model: Model, reason: str) -> Model:
    """The model, skipped because it cannot be built, and not on purpose."""
    return replace(model, overrides=replace(model.overrides, skip=skip_reason(reason)))


def skip_reason(reason: str) -> str:
    """Why something is skipped that the engine cannot build."""
    return f"{_REFUSED}{reason}"


def is_refused(skip: str | None) -> bool:
    """Whether something is skipped because the engine cannot build it, and not on purpose."""
    return bool(skip) and str(skip).startswith(_REFUSED)


def _model(entry: Entry) -> Model | None:
    name = read_id(entry, "hf_id")
    if name is None:
        return None
    return Model(
        id=name,
        task=read_task(entry) or "",
        model_type=entry.text("model_type", required=True) or "unknown",
        group=entry.text("group", required=True) or "",
        priority=entry.choice("priority", PRIORITIES, required=True) or "P2",
        source=hub_source(entry, name) or Source(SourceKind.HUB, name),
        overrides=_overrides(entry),
        extra=_carried(entry),
        where=entry.where,
    )


def _overrides(entry: Entry) -> Overrides:
    prebuilt = entry.data.get("composite_onnx")
    skip = PREBUILT if prebuilt else None
    if prebuilt is not None and not isinstance(prebuilt, dict):
        entry.bad(f"composite_onnx must be an object {{role: ref}}, not {quote(prebuilt)}")
    if entry.data.get("precision") is None:
        return Overrides(skip=skip)
    asked = (entry.text("precision") or "").strip().casefold()
    precision = canonical(INTEGER_TYPES.get(asked, asked))
    if precision is None and asked in FOREIGN_PRECISIONS:
        return Overrides(skip=skip or f"precision {asked} of the registry is not built here")
    if precision is None and isinstance(entry.data["precision"], str):
        entry.bad(f"unknown precision {quote(asked)}", hint(asked, NAMES))
    return Overrides(precision=(precision,) if precision else None, skip=skip)


def _carried(entry: Entry) -> Mapping[str, Any]:
    entry.known.append("precision")
    extra = entry.unknown()
    if not plain(extra):
        entry.bad("contains a value that cannot be stored", "nested too deeply, or not Unicode")
        return {}
    return extra
