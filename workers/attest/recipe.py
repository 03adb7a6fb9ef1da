"""The recipe of a package: everything that the plan decided for it, so it can be built again.

The provenance holds it. What a machine decides (folders, budgets, times) is not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from matrix.model import Cell, Model, Policy, Source, SourceKind, Target

Json = Mapping[str, Any]

_TARGET = ("label", "ep", "device", "provider")


def recipe_of(cell: Cell, *, allow: Json) -> dict[str, Any]:
    """The recipe of a cell. Local folders appear by name only; digests identify their content."""
    model, source = cell.model, cell.model.source
    ref = PurePath(source.ref).name if source.kind is SourceKind.FOLDER else source.ref
    authored = {"recipes": PurePath(model.recipes).name} if model.recipes else {}
    return {
        "cell": cell.id,
        "package": cell.package,
        "version": cell.version,
        "model": {
            "id": model.id,
            "task": model.task,
            "model_type": model.model_type,
            "dataset": dict(model.dataset) if model.dataset is not None else None,
            **authored,
            "source": {
                "kind": str(source.kind),
                "ref": ref,
                "revision": source.revision,
                "seed": source.seed,
                "config": dict(source.config),
                **({"file": source.file} if source.file else {}),
            },
        },
        "allow": dict(allow),
        "target": {name: getattr(cell.target, name) for name in _TARGET},
        "policy": asdict(cell.policy),
    }


def cell_of(
    recipe: Json, *, timeout: float, folder: str | None = None, recipes: str | None = None
) -> Cell:
    """The cell of a recipe. Raises `KeyError`, `TypeError` or `ValueError` if it is not valid.

    `folder`: where the source of a folder model is on this machine; `recipes`: its recipes.
    """
    model, allow = recipe["model"], recipe["allow"]
    source = dict(model["source"])
    kind = SourceKind(source.pop("kind"))
    if kind is SourceKind.FOLDER and folder is not None:
        source["ref"] = folder
    policy: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in recipe["policy"].items()
    }
    target: dict[str, Any] = {name: str(recipe["target"][name]) for name in _TARGET}
    return Cell(
        id=str(recipe["cell"]),
        model=Model(
            id=str(model["id"]),
            task=str(model["task"]),
            source=Source(kind, **source),
            model_type=str(model["model_type"]),
            dataset=model["dataset"],
            remote_code=bool(allow["remote_code"]),
            pickle=bool(allow["pickle"]),
            recipes=recipes or model.get("recipes"),
        ),
        target=Target(**target),
        policy=Policy(**policy),
        package=str(recipe["package"]),
        version=str(recipe["version"]),
        timeout=timeout,
        publish_timeout=timeout,
    )
