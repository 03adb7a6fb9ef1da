"""A model as the graphs it is exported to: name -> (module, Optimum's ONNX configuration)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.optimum_engine import towers
from workers.sources.errors import export_error, one_line
from workers.sources.tasks import tasks_manager

Parts = Mapping[str, tuple[Any, Any]]

_VARIANTS = {"metaclip_2": "split"}
"""Architectures that Optimum itself exports as two towers when asked."""


def parts(model: Any, task: str, side_files: Path | None) -> Parts:
    """The graphs of a model; a single one is called by the empty name."""
    if towers.splits(model.config, task):
        return towers.parts(model)
    tasks_manager()  # the function below reads its table
    from optimum.exporters.onnx.utils import _get_submodels_and_onnx_configs

    try:
        _, found = _get_submodels_and_onnx_configs(
            model=model,
            task=task,
            monolith=False,
            custom_onnx_configs={},
            custom_architecture=False,
            _variant=_VARIANTS.get(model.config.model_type, "default"),
            library_name="transformers",
            preprocessors=_preprocessors(side_files),
        )
    except (ValueError, KeyError, AttributeError, NotImplementedError) as error:
        raise export_error(
            f"the exporter cannot lay out {model.config.model_type} for '{task}': {one_line(error)}"
        ) from error
    if len(found) == 1:
        return {"": next(iter(found.values()))}
    return {_component(name): part for name, part in found.items()}


def _component(name: str) -> str:
    """`encoder_model` -> `encoder`."""
    return name.removesuffix("_model")


def _preprocessors(folder: Path | None) -> list[Any]:
    # Some shapes (audio features, image sizes) stand in the preprocessor's config alone.
    if folder is None or not list(folder.glob("*processor_config.json")):
        return []
    from optimum.utils.save_utils import maybe_load_preprocessors

    return list(maybe_load_preprocessors(str(folder)))
