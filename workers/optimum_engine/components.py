"""The graphs that a model is exported to, and how they are joined.

The family of the model defines them (`architectures`), or Optimum if the family does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.composition import Join
from workers.optimum_engine import decoders
from workers.optimum_engine.architectures import families, shapes
from workers.sources.errors import export_error, one_line

Parts = Mapping[str, tuple[Any, Any]]
"""Component -> (module, Optimum's ONNX configuration); the name of a single model is empty."""


def parts(model: Any, task: str, side_files: Path | None) -> Parts:
    """The graphs of a model."""
    families.register()
    hook = families.hook(model.config.model_type, task, "parts")
    found: Parts | None = hook(model, task) if hook else None
    found = found or _one_call(model, task) or _of_optimum(model, task, side_files)
    if side_files is not None:
        for _module, config in found.values():
            config.image_size = shapes.image_size(side_files)
    return found


def joins(model: Any, task: str) -> list[Join]:
    """How outputs of components are joined to results."""
    found: list[Join] = []
    if hook := families.hook(model.config.model_type, task, "joins"):
        found = hook(model, task)
    return found


def _one_call(model: Any, task: str) -> Parts | None:
    """The one graph of a row with inputs: Optimum would lay out a decoder by configuration values
    that such a row does not have."""
    if not families.is_one_graph(model.config.model_type, task):
        return None
    from optimum.exporters.tasks import TasksManager

    made = TasksManager.get_exporter_config_constructor(
        "onnx", model, task=task, library_name="transformers"
    )
    return {"": (model, made(model.config))}


def _of_optimum(model: Any, task: str, side_files: Path | None) -> Parts:
    from optimum.exporters.onnx.utils import _get_submodels_and_onnx_configs

    try:
        _, found = _get_submodels_and_onnx_configs(
            model=model,
            task=task,
            monolith=False,
            custom_onnx_configs={},
            custom_architecture=False,
            _variant="default",
            library_name="transformers",
            preprocessors=_preprocessors(side_files),
        )
    except (ValueError, KeyError, AttributeError, NotImplementedError) as error:
        raise export_error(
            f"the exporter cannot lay out {model.config.model_type} for '{task}': {one_line(error)}"
        ) from error
    found = decoders.split(task, found)
    if len(found) == 1:
        return {"": next(iter(found.values()))}
    return {name.removesuffix("_model"): part for name, part in found.items()}


def _preprocessors(folder: Path | None) -> list[Any]:
    # Only the preprocessor's config has some shapes (audio features, image sizes).
    if folder is None or not list(folder.glob("*processor_config.json")):
        return []
    from optimum.utils.save_utils import maybe_load_preprocessors

    return list(maybe_load_preprocessors(str(folder)))
