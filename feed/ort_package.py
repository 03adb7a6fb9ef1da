"""A model's packages of one stamp as one folder in ONNX Runtime's model-package format.

    DIR/manifest.json    the components of the model, each with its variants
    DIR/<variant>/       the package of a cell as it was published, e.g. `qnn_npu+htp73`

ONNX Runtime takes, of the variants for its provider and device, the one whose compatibility string
the provider likes best, and of equal ones the first: compiled variants stand before portable ones.
The folder gets its name when every package is there and checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from feed.errors import Corrupt, local_errors
from feed.index import IndexCell
from feed.interface import Feed
from feed.reader import occupied, pull, staging
from feed.selection import check_tree, resolve_index, select
from feed.verdict import CheckSignature
from machine.files import long_path, move, read_json
from matrix.cellid import parse
from matrix.digest import MANIFEST
from matrix.errors import NothingSelected, UsageError
from matrix.manifest import checked_manifest
from matrix.paths import path_problem

SCHEMA_VERSION = "1.0"
MODEL = "model"
"""The component of a model that is one graph."""
COMPOSITION = "composition.json"
CPU = "CPUExecutionProvider"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OrtPackage:
    """What the folder holds."""

    dest: Path
    model: str
    components: tuple[str, ...]
    variants: tuple[str, ...]
    """In the order in which ONNX Runtime sees them."""
    size: int


def pull_ort_package(
    feed: Feed,
    index_package: str,
    stamp: str,
    dest: Path,
    *,
    targets: Sequence[str] = ("*",),
    models: Sequence[str] = ("*",),
    signature: CheckSignature | None = None,
) -> OrtPackage:
    """Pull the matching cells of one model into a new folder. Raises if any is not there."""
    dest = long_path(dest)
    with local_errors(dest):
        if occupied(dest):
            raise UsageError(f"{dest} is not empty", hint="give a new folder")
    found = resolve_index(feed, index_package, stamp, signature=signature)
    cells = _of_one_model(select(found.index, targets=targets, models=models), stamp)
    size = 0
    components: dict[str, dict[str, Json]] = {}
    with staging(dest) as stage:
        for cell in cells:
            check_tree(feed, cell)
            folder = stage / _name(cell)
            pulled = pull(feed, cell.package, cell.version, folder, signature=signature)
            size += sum(file.size for file in pulled.files)
            for component, variant in _variants(folder, cell):
                components.setdefault(component, {})[_name(cell)] = variant
        model = f"{cells[0].model}:{cells[0].task}".removesuffix(":")
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "package_name": model,
            "package_version": stamp,
            "components": {
                name: {"component_name": name, "variants": variants}
                for name, variants in components.items()
            },
            "additional_metadata": {"index": f"{index_package} {found.published.version}"},
        }
        with local_errors(dest):
            text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
            (stage / "manifest.json").write_bytes(text.encode())
            if dest.is_dir():
                dest.rmdir()
            move(stage, dest)
    return OrtPackage(dest, model, tuple(components), tuple(map(_name, cells)), size)


def _of_one_model(cells: Sequence[IndexCell], stamp: str) -> list[IndexCell]:
    """The cells of the only model among them, compiled ones first."""
    names = sorted({f"{cell.model}:{cell.task}" for cell in cells})
    if not names:
        raise NothingSelected(
            f"no published cell of stamp {stamp} matches", hint="give another --model or --target"
        )
    if len(names) > 1:
        raise UsageError(
            f"--model selects {len(names)} models: {', '.join(names[:5])}",
            hint="a model package holds one: name it as MODEL or MODEL:TASK",
        )
    return sorted(cells, key=lambda cell: parse(cell.id).profile is None)


def _name(cell: IndexCell) -> str:
    """The target, with a precision of its own and the profile; a folder name on every system."""
    return cell.id.rpartition("@")[2].replace(":", "-")


def _variants(folder: Path, cell: IndexCell) -> Iterator[tuple[str, Json]]:
    """The components of a package, each with its variant."""
    try:
        manifest = checked_manifest(read_json(folder / MANIFEST))
        for component, model in _graphs(folder):
            yield component, _variant(manifest, component, model, cell)
    except (OSError, ValueError, TypeError, KeyError) as error:
        text = f"{cell.package} {cell.version}: what it holds cannot be read: {error}"
        raise Corrupt(text) from error


def _graphs(folder: Path) -> Iterator[tuple[str, PurePosixPath]]:
    """The components of a model and their files, as its composition names them."""
    file = folder / COMPOSITION
    if file.is_file():
        named = [(one["name"], one["model"]) for one in read_json(file)["components"]]
    else:
        found = [path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx")]
        if len(found) != 1:
            raise ValueError(f"it has no {COMPOSITION} and {len(found)} ONNX files instead of one")
        named = [(MODEL, found[0])]
    for component, model in named:
        if path_problem(model) or not (folder / model).is_file():
            raise ValueError(f"{COMPOSITION} names {model!r}, which is not a file of the package")
        yield component, PurePosixPath(model)


def _variant(manifest: Json, component: str, model: PurePosixPath, cell: IndexCell) -> Json:
    target, profile = manifest["target"], manifest.get("profile") or {}
    origin = {"cell": cell.id, "package": cell.package, "version": cell.version, "tree": cell.tree}
    variant: dict[str, Any] = {
        "variant_directory": (PurePosixPath(_name(cell)) / model.parent).as_posix(),
        "ep": target["provider"],
    }
    if target["provider"] != CPU:  # ONNX Runtime expects no device for its CPU
        variant["device"] = target["device"]
    executor: dict[str, Any] = {"model_file": model.name}
    if profile:
        stage = _compiled(manifest, component)
        origin["emulated"] = stage["params"]["emulated"]
        if compatibility := stage["facts"]["compatibility"].get(target["provider"]):
            variant["compatibility_string"] = compatibility
        files = profile["file_options"]  # they name files of the machine that compiled
        executor["provider_options"] = {
            name: value for name, value in profile["options"].items() if name not in files
        }
    return {**variant, "executor_info": {"ort": executor}, "additional_metadata": origin}


def _compiled(manifest: Json, component: str) -> Json:
    for stage in manifest["stages"]:
        if stage["stage"] == "compile" and stage["component"] in {"", component}:
            found: Json = stage
            return found
    raise ValueError(f"{MANIFEST} has no stage that compiled {component}")
