"""Models, catalogs and plans for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from feed.rules import STRICTEST
from flows.settings.settings import Settings
from matrix.catalog import Catalog, load_catalog
from matrix.model import Model, Plan, Source, SourceKind
from matrix.naming import Limits
from matrix.plan import PlanOptions, make_plan
from matrix.selector import Selection
from matrix.targets import Targets, load_targets

TARGETS = load_targets()
EVERYTHING = Selection(priorities=("P0", "P1", "P2", "P3"))
STAMP = "20260609"


def plan_options(stamp: str = STAMP, limits: Limits = STRICTEST, **changes: Any) -> PlanOptions:
    """The options of a plan with the defaults of the settings."""
    settings = Settings(cwd=Path())
    own = {one.name for one in fields(PlanOptions)} - {"stamp", "limits"}
    values = {name: getattr(settings, name) for name in own}
    return PlanOptions(stamp, limits, **{**values, **changes})


OPTIONS = plan_options()


def a_model(name: str = "microsoft/resnet-50", task: str = "image-classification") -> Model:
    return Model(id=name, task=task, source=Source(SourceKind.HUB, name), where=f"test ({name})")


def catalog_of(*models: Model) -> Catalog:
    return Catalog("test", models, Path("test.toml"))


def plan_of(
    models: Sequence[Model],
    *,
    selection: Selection = EVERYTHING,
    options: PlanOptions | None = None,
    targets: Targets = TARGETS,
) -> Plan:
    return make_plan(
        catalog_of(*models), targets, selection, options or plan_options(STAMP, STRICTEST)
    )


def write(folder: Path, text: str, name: str = "catalog.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str, name: str = "catalog.toml") -> Catalog:
    return load_catalog(write(folder, text, name), base=folder, targets=TARGETS)
