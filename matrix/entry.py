"""One entry of a catalog: a table with our keys becomes a `Model`, its faults become problems."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from matrix.abilities import READY
from matrix.build_options import read_build
from matrix.cellid import model_fault, task_fault
from matrix.datasets import read_dataset, read_synthetic
from matrix.errors import looked_up
from matrix.model import PRIORITIES, Model, Overrides, Source, SourceKind
from matrix.nearest import quote
from matrix.policy import precision_named
from matrix.reader import Entry
from matrix.targets import OPSETS, Targets
from matrix.verification import read_rules

SOURCE_KEYS = ("hub", "folder", "random", "onnx", "file")
HUB_ID = re.compile(r"(?:[\w.-]+/)?[\w.-]+")
FILES = {"onnx": (READY,), "file": (".skops", ".json", ".ubj")}
"""Keys that name a file in the source, and the suffixes that it may have."""
PICKLES = (".pkl", ".pickle", ".joblib", ".bin")
SAVED_SAFELY = 'save the model with skops.io.dump, or XGBoost\'s own with save_model("model.json")'
_OUT = frozenset({"", ".", ".."})
"""Parts of a path that lead out of a folder or are redundant."""
MAX_SEED = 2**32 - 1
MAX_SHAPE = 2**31 - 1


def read_model(entry: Entry, folder: Path, targets: Targets) -> Model | None:
    """A model of a TOML catalog; relative paths in it start at `folder`."""
    name = read_id(entry, "id")
    task = read_task(entry)
    source = _source(entry, name, folder)
    random_type = source.ref if source and source.kind is SourceKind.RANDOM else "unknown"
    model = Model(
        id=name or "",
        task=task or "",
        source=source or Source(SourceKind.HUB, ""),
        model_type=entry.text("model_type", empty=False) or random_type,
        group=entry.text("group") or "",
        priority=entry.choice("priority", PRIORITIES) or "P2",
        overrides=_overrides(entry, folder),
        per_target=_per_target(entry, targets, folder),
        remote_code=entry.flag("remote_code") or False,
        pickle=entry.flag("pickle") or False,
        new_head=_new_head(entry, source),
        dataset=_dataset(entry, folder),
        samples=read_synthetic(entry),
        recipes=_recipes(entry, folder),
        context_group=_context_group(entry),
        needs=entry.texts("needs") or (),
        extra={"tags": list(tags)} if (tags := entry.texts("tags")) else {},
        where=entry.where,
    )
    entry.close()
    return None if name is None or task is None or source is None else model


def read_id(entry: Entry, key: str) -> str | None:
    """The model id, checked for its use in cell ids."""
    name = entry.text(key, required=True)
    if name is None:
        return None
    fault = model_fault(name)
    if fault:
        entry.bad(f"{key} {quote(name)}: {fault}")
        return None
    return name


def read_task(entry: Entry) -> str | None:
    """The task; empty lets the engine infer it."""
    task = entry.text("task", required=True)
    fault = task_fault(task) if task else ""
    if fault:
        entry.bad(fault)
        return None
    return task


def hub_source(
    entry: Entry, ref: str, revision: str | None = None, file: str | None = None
) -> Source | None:
    """A model on the Hub; `OWNER/NAME/PATH.onnx` is a ready ONNX file in a repository."""
    parts = ref.split("/")
    if file is None and len(parts) > 2 and ref.lower().endswith(READY):
        ref, file = "/".join(parts[:2]), "/".join(parts[2:])
    if not HUB_ID.fullmatch(ref):
        entry.bad(
            f"{quote(ref)} is not a Hub id (NAME or OWNER/NAME)",
            "give the source with hub, folder, random, onnx or file",
        )
        return None
    return Source(SourceKind.HUB, ref, revision, file=file)


def _source(entry: Entry, name: str | None, folder: Path) -> Source | None:
    given = [key for key in SOURCE_KEYS if key in entry.data]
    hub = entry.text("hub", empty=False)
    local = entry.text("folder", empty=False)
    random = entry.table("random")
    files = {key: entry.text(key, empty=False) for key in FILES}
    revision = entry.text("revision", empty=False)
    places = [key for key in given if key not in FILES]
    named = [(key, path) for key, path in files.items() if path is not None]
    if len(places) > 1 or len(named) > 1 or (named and "random" in given):
        entry.bad(f"{' and '.join(given)} exclude each other", "a model has one source")
        return None
    if revision is not None and given and "hub" not in given:
        entry.bad(f"revision does not go with {given[0]}", "only the Hub has revisions")
    file = named[0] if named else None
    if file is not None and not _file_path(entry, *file, inside=bool(places)):
        return None
    if file is not None and not places:
        return _file_source(entry, *file, folder)
    if local is not None:
        return _folder_source(entry, local, folder, file)
    if random is not None:
        return _random_source(entry.inner("random"))
    ref = hub if given else name  # a source of the wrong type is reported already
    return None if ref is None else hub_source(entry, ref, revision, file[1] if file else None)


def _file_path(entry: Entry, key: str, path: str, *, inside: bool) -> bool:
    """Whether this can be the path of such a file, `inside` a repository or folder."""
    if not path.lower().endswith(FILES[key]):
        if key == "file" and path.lower().endswith(PICKLES):
            text = f"{key} {quote(path)} is a pickle, which can run code when it is loaded"
            entry.bad(text, SAVED_SAFELY)
        else:
            entry.bad(f"{key} {quote(path)} is not the path of a {' or '.join(FILES[key])} file")
        return False
    if inside and leads_out(path):
        entry.bad(f"{key} {quote(path)} leads out of its source", "give a path inside it, with /")
        return False
    return True


def leads_out(path: str) -> bool:
    """Whether a path inside a source may be one outside it, on any system."""
    return not set(re.split(r"[/\\:]", path)).isdisjoint(_OUT)


def _file_source(entry: Entry, key: str, file: str, folder: Path) -> Source | None:
    """A file on this machine; its folder is the source, as for a folder model."""
    advice = "; for a file of a Hub repository, give hub too"
    path = entry.existing(_called(key), file, folder, advice=advice)
    return Source(SourceKind.FOLDER, str(path.parent), file=path.name) if path else None


def _folder_source(
    entry: Entry, local: str, folder: Path, file: tuple[str, str] | None
) -> Source | None:
    path = entry.existing("folder", local, folder, directory=True)
    if path is None or (file and entry.existing(_called(file[0]), file[1], path) is None):
        return None
    return Source(SourceKind.FOLDER, str(path), file=file[1] if file else None)


def _called(key: str) -> str:
    return "onnx file" if key == "onnx" else key


def _random_source(inner: Entry) -> Source | None:
    architecture = inner.text("architecture", required=True, empty=False)
    seed = inner.integer("seed", 0, MAX_SEED)
    config = inner.table("config")
    inner.close()
    if architecture is None:
        return None
    return Source(SourceKind.RANDOM, architecture, seed=seed or 0, config=config or {})


def _overrides(entry: Entry, folder: Path) -> Overrides:
    skip = entry.text("skip")
    if skip is not None and not skip.strip():
        entry.bad("skip needs a reason as text")
    return Overrides(
        precision=read_precision(entry),
        opset=entry.integer("opset", *OPSETS),
        shapes=_shapes(entry),
        build=read_build(entry),
        timeout=entry.seconds("timeout"),
        publish_timeout=entry.seconds("publish_timeout"),
        skip=skip or None,
        verify=read_rules(entry, folder),
    )


def read_precision(entry: Entry) -> tuple[str, ...] | None:
    """One precision or a list of them, by their canonical names."""
    names = entry.texts("precision")
    if names is None:
        return None
    if not names:
        entry.bad("precision is an empty list")
    found = looked_up(entry.where, names, precision_named, entry.problems)
    return tuple(dict.fromkeys(found)) or None


def _shapes(entry: Entry) -> dict[str, int] | None:
    inner = entry.inner("shapes")
    table = inner.data
    if "shapes" not in entry.data:
        return None
    # Exporters write names such as `p2o.DynamicDimension.1` into files.
    names = [key for key in table if key.isprintable() and key.split() == [key]]
    values = {key: inner.integer(key, 1, MAX_SHAPE) for key in names}
    for key in table:
        if key not in names:
            inner.bad(f"{quote(key)} cannot be the name of a dimension")
    return {key: value for key, value in values.items() if value is not None}


def _per_target(entry: Entry, targets: Targets, folder: Path) -> dict[str, Overrides]:
    found: dict[str, Overrides] = {}
    for pattern, table in (entry.table("target") or {}).items():
        where = f"{entry.where}: target {quote(pattern)[1:-1]}"
        inner = Entry(table if isinstance(table, dict) else {}, where, entry.problems)
        if not isinstance(table, dict):
            inner.bad(f"must be a table, not {quote(table)}")
        overrides = _overrides(inner, folder)
        inner.close()
        # Aliases and case are settled here, so that the plan only ever compares labels. A target
        # named twice keeps its first table, as with globs: a model's own comes before a default.
        for label in looked_up(where, [pattern], targets.label_or_glob, inner.problems):
            found.setdefault(label, overrides)
    return found


def _dataset(entry: Entry, folder: Path) -> dict[str, Any] | None:
    given = entry.data.get("dataset")
    if isinstance(given, str):
        entry.known.append("dataset")
        entry.bad("dataset must be a table", f'dataset = {{ path = "{given}" }}')
        return None
    inner = entry.inner("dataset")
    return None if given is None else read_dataset(inner, folder)


def _new_head(entry: Entry, source: Source | None) -> str:
    """Why the head may be random, of a model that is loaded from a checkpoint."""
    reason = entry.text("new_head", empty=False) or ""
    if reason and source and (source.kind is SourceKind.RANDOM or source.file):
        entry.bad("new_head goes with hub or folder only", "leave it out")
    return reason


def _context_group(entry: Entry) -> str:
    """The name of a group, which is the model of its cells."""
    name = entry.text("context_group", empty=False) or ""
    if name and (fault := model_fault(name)):
        entry.bad(f"context_group {quote(name)}: {fault.replace('the model id', 'it')}")
    return name


def _recipes(entry: Entry, folder: Path) -> str | None:
    named = entry.text("recipes", empty=False)
    path = named and entry.existing("recipes folder", named, folder, directory=True)
    return str(path) if path else None
