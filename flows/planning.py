"""From settings and a catalog's name to a plan."""

from __future__ import annotations

from datetime import date

from flows.settings import Settings
from flows.workspace import Workspace
from matrix.catalog import load_catalog, packaged
from matrix.model import Plan
from matrix.plan import PlanOptions, make_plan
from matrix.selector import Selection


def stamp_of(settings: Settings, today: date) -> str:
    """The name of the batch: as set, or the date."""
    return str(settings["stamp"] or today.strftime("%Y%m%d"))


def selection_of(settings: Settings) -> Selection:
    """The filters."""
    return Selection(
        models=settings["model"],
        tasks=settings["task"],
        groups=settings["group"],
        model_types=settings["model_type"],
        priorities=settings["priority"],
        targets=settings["target"],
        eps=settings["ep"],
        devices=settings["device"],
        only=settings["only"],
        skip=settings["skip"],
    )


def plan_of(settings: Settings, catalog: str, today: date) -> Plan:
    """Everything that can be wrong with the input of a sweep is found here."""
    targets = Workspace(settings).targets()
    options = PlanOptions(
        stamp=stamp_of(settings, today),
        package=settings["package"],
        engine=settings["engine"],
        precision=settings["precision"],
        opset=settings["opset"],
        self_contained=settings["self_contained"],
        timeout=settings["timeout"],
        publish_timeout=settings["publish_timeout"],
    )
    loaded = load_catalog(catalog, base=settings.cwd, targets=targets)
    return make_plan(loaded, targets, selection_of(settings), options)


def catalog_reference(settings: Settings, catalog: str) -> str:
    """How a resume from any folder finds the catalog again."""
    return catalog if catalog in packaged() else str((settings.cwd / catalog).absolute())
