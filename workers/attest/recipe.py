"""The recipe of a package: everything that the plan decided for it, so it can be built again.

The provenance holds it. What a machine decides (folders, budgets, times) is not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from matrix.codec import from_json, to_json
from matrix.model import Cell, SourceKind

Json = Mapping[str, Any]

_TARGET = ("label", "ep", "device", "provider")
_NOT_OF_A_CELL = {"group", "priority", "overrides", "per_target", "needs", "extra", "where"}
"""What a model has for planning and for looking at; a new field of it is part of the recipe."""
_ALLOWED = {"remote_code", "pickle"}
"""What the user allows for it, which may be less than the catalog asks for."""


def recipe_of(cell: Cell, *, allow: Json) -> dict[str, Any]:
    """The recipe of a cell. Local folders appear by name only; digests identify their content."""
    model = to_json(cell.model)
    if cell.model.source.kind is SourceKind.FOLDER:
        model["source"]["ref"] = PurePath(cell.model.source.ref).name
    if cell.model.recipes:
        model["recipes"] = PurePath(cell.model.recipes).name
    return {
        "cell": cell.id,
        "package": cell.package,
        "version": cell.version,
        "model": {k: v for k, v in model.items() if k not in _NOT_OF_A_CELL | _ALLOWED},
        "allow": dict(allow),
        "target": {name: getattr(cell.target, name) for name in _TARGET},
        "policy": to_json(cell.policy),
        **({"profile": to_json(cell.profile)} if cell.profile else {}),
        **(
            {"members": [recipe_of(one, allow=allow) for one in cell.members]}
            if cell.members
            else {}
        ),
    }


def cell_of(
    recipe: Json, *, timeout: float, folder: str | None = None, recipes: str | None = None
) -> Cell:
    """The cell of a recipe. Raises `KeyError`, `TypeError` or `ValueError` if it is not valid.

    `folder`: where the source of a folder model is on this machine; `recipes`: its recipes.
    """
    model = {**recipe["model"], **{name: recipe["allow"][name] for name in _ALLOWED}}
    if folder is not None and model["source"]["kind"] == SourceKind.FOLDER:
        model["source"] = {**model["source"], "ref": folder}
    if recipes:
        model["recipes"] = recipes
    values = {
        "id": recipe["cell"],
        "model": model,
        **{name: recipe[name] for name in ("package", "version", "target", "policy")},
        "profile": recipe.get("profile"),
        "members": [
            cell_of(one, timeout=timeout, folder=folder, recipes=recipes)
            for one in recipe.get("members", ())
        ],
        "timeout": timeout,
        "publish_timeout": timeout,
    }
    return from_json(values, Cell)
