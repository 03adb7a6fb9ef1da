"""All families of `architectures.toml`, registered with Optimum; the family of an architecture."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from workers.optimum_engine.architectures.rows import Row, rows
from workers.sources.errors import export_error, one_line

_LOADERS = {
    "video-classification": "AutoModelForVideoClassification",
    "table-question-answering": "AutoModelForTableQuestionAnswering",
    "document-question-answering": "AutoModelForDocumentQuestionAnswering",
    "keypoint-detection": "AutoModelForKeypointDetection",
    "keypoint-matching": "AutoModelForKeypointMatching",
    "time-series-forecasting": "AutoModelForTimeSeriesPrediction",
}
"""Tasks for which Transformers has models and Optimum no word, or no class of its own."""


@cache
def register() -> None:
    """Register every row. Stages call it before they ask Optimum; the first call does it."""
    import optimum.exporters.onnx.model_configs  # noqa: F401 - fills the table first
    from optimum.exporters.tasks import TasksManager

    from workers.optimum_engine.architectures import generic

    for task, loader in _LOADERS.items():
        TasksManager._TRANSFORMERS_TASKS_TO_MODEL_LOADERS.setdefault(task, loader)
    for architecture, row in rows().items():
        for task, name in row.classes.items():
            package, _, class_name = name.rpartition(".")
            key = ("pt", architecture, task)
            TasksManager._CUSTOM_CLASSES[key] = (package or "transformers", class_name)
        if row.inputs or row.like:
            patches = getattr(_module(row), "PATCHES", {}) if row.module else {}
            generic.register(architecture, row, patches)
    for module in {_named(row): row for row in rows().values() if row.module}.values():
        if hasattr(found := _module(module), "register"):
            found.register()


def hook(architecture: str, task: str, name: str) -> Any:
    """A function of the family file that has this architecture and task, or None."""
    row = rows().get(architecture)
    if row is None or not row.module or task not in row.tasks:
        return None
    return getattr(_module(row), name, None)


def is_one_graph(architecture: str, task: str) -> bool:
    """Whether a row alone exports an architecture for a task: as one call, without a cache."""
    row = rows().get(architecture)
    return (
        row is not None and not row.like and task in row.tasks and bool(row.names("inputs", task))
    )


def _named(row: Row) -> str:
    return f"{row.package}.{row.module}"


def _module(row: Row) -> ModuleType:
    try:
        return import_module(_named(row))
    except ImportError as error:
        raise export_error(
            f"the family {_named(row)} cannot be imported: {one_line(error)}",
            "correct or uninstall the package",
        ) from error
