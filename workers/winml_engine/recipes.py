"""winml-cli's authored recipes: the one for a cell, as plain data.

A recipe is `FOLDER/<id with the first / as _>/<ep>/<device>/<task>_<precision>_config.json`, or
the same file directly in the model's folder (the older layout, used only if the target has no
folder of its own). A composite has one file per component: `..._config_<role>.json` or
`<task>_<precision>_<role>_config.json`. The sections of a recipe become parameters of the stages
that use them, so they are part of their keys, and recipes with equal export sections share it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.engine import Request
from workers.sources.errors import unsupported

PRECISIONS = ("fp16", "fp32", "w8a16", "w8a8")
SECTIONS = {"auto", "compile", "convert", "eval", "export", "loader", "optim", "quant"}
COMMENTS = {"skip_optimize", "is_cgc", "precision"}
_NAME = re.compile(
    rf"(?P<task>.+)_(?P<precision>{'|'.join(PRECISIONS)})"
    r"(?:_(?P<first>[a-z0-9-]+))?_config(?:_(?P<last>[a-z0-9-]+))?\.json"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of one cell: a configuration for each component ("" for a single model)."""

    name: str
    by_role: Mapping[str, Mapping[str, Any]]

    def sections(self, *names: str) -> dict[str, Any]:
        """Some of its sections, by component."""
        return {
            role: {name: config[name] for name in names if name in config}
            for role, config in self.by_role.items()
        }


def find(request: Request) -> Recipe | None:
    """The recipe for a request, if its catalog names a folder that has one."""
    folder = request.model.get("recipes")
    if not folder:
        return None
    root = Path(folder)
    if not root.is_dir():
        raise unsupported(f"there is no recipes folder {root}", "correct recipes in the catalog")
    own = root / str(request.model["id"]).replace("/", "_", 1)
    target = own / request.target["ep"] / request.target["device"]
    place = target if target.is_dir() else own
    wanted = str(request.policy["precision"])
    found = _recipe(place, request.model["task"], wanted, root)
    if found is None and wanted == "fp32":
        # Many recipes are called fp16 but do not convert: they ship fp32.
        found = _recipe(place, request.model["task"], "fp16", root)
        if found and any(config.get("quant") for config in found.by_role.values()):
            return None
    return found


def _recipe(place: Path, task: str, precision: str, root: Path) -> Recipe | None:
    by_role: dict[str, Mapping[str, Any]] = {}
    for file in sorted(place.glob("*.json")) if place.is_dir() else ():
        parts = _NAME.fullmatch(file.name)
        if parts and (parts["task"], parts["precision"]) == (task, precision):
            by_role[parts["first"] or parts["last"] or ""] = _read(file)
    if not by_role:
        return None
    if "" in by_role and len(by_role) > 1:
        raise unsupported(f"{place}: recipes for {task} {precision} with and without a component")
    return Recipe(f"{place.relative_to(root).as_posix()}/{task}_{precision}", by_role)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unsupported(f"the recipe {file} cannot be read", "is it valid JSON?") from error
    if not isinstance(config, dict):
        raise unsupported(f"the recipe {file} is not an object", "arrays are for single modules")
    if "_status" in config:
        raise unsupported(f"the recipe {file} is marked as broken: {config['_status']}")
    unknown = sorted(set(config) - SECTIONS - COMMENTS)
    if unknown:
        raise unsupported(f"the recipe {file} has an unknown section {unknown[0]}")
    return config
