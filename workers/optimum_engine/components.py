"""A model as the graphs that it is exported to, and what joins them.

Optimum lays out all architectures except CLIP-like ones. Those it exports as one graph, so a
consumer cannot embed one side without the other, and the text side keeps the image side from
running on an NPU. Here they become two components, one per tower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.composition import Join
from workers.optimum_engine import decoders
from workers.sources.errors import export_error, one_line
from workers.sources.load import tasks_manager

Parts = Mapping[str, tuple[Any, Any]]
"""Component -> (module, Optimum's ONNX configuration); the name of a single model is empty."""

_VARIANTS = {"metaclip_2": "split"}
"""Architectures that Optimum itself exports as two towers when asked."""

_TOWER_TASKS = ("feature-extraction", "zero-shot-image-classification")
_TOWER_MODULES = ("text_model", "text_projection", "vision_model", "visual_projection")


@dataclass(frozen=True, slots=True)
class _Towers:
    text_class: str
    vision_class: str
    text_output: str
    vision_output: str


_TOWERS = {
    "clip": _Towers(
        "CLIPTextModelWithProjection",
        "CLIPVisionModelWithProjection",
        "text_embeds",
        "image_embeds",
    ),
    "siglip": _Towers("SiglipTextModel", "SiglipVisionModel", "pooler_output", "pooler_output"),
}


def parts(model: Any, task: str, side_files: Path | None) -> Parts:
    """The graphs of a model."""
    if _splits(model, task):
        return _tower_parts(model)
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
    found = decoders.split(task, found)
    if len(found) == 1:
        return {"": next(iter(found.values()))}
    return {name.removesuffix("_model"): part for name, part in found.items()}


def joins(model: Any, task: str) -> list[Join]:
    """How the outputs of two towers become logits; the scale is already exponentiated."""
    if not _splits(model, task):
        return []
    towers = _TOWERS[model.config.model_type]
    scale = getattr(model, "logit_scale", None)
    bias = getattr(model, "logit_bias", None)
    return [
        Join(
            "logits",
            (f"text/{towers.text_output}", f"vision/{towers.vision_output}"),
            float(scale.detach().exp()) if scale is not None else 1.0,
            float(bias.detach()) if bias is not None else 0.0,
        )
    ]


def _splits(model: Any, task: str) -> bool:
    return model.config.model_type in _TOWERS and task in _TOWER_TASKS


def _preprocessors(folder: Path | None) -> list[Any]:
    # Only the preprocessor's config has some shapes (audio features, image sizes).
    if folder is None or not list(folder.glob("*processor_config.json")):
        return []
    from optimum.utils.save_utils import maybe_load_preprocessors

    return list(maybe_load_preprocessors(str(folder)))


def _tower_parts(model: Any) -> Parts:
    """The two towers; they share their weights with the model."""
    from optimum.exporters.onnx import model_configs as configs

    towers = _TOWERS[model.config.model_type]
    text = _tower(towers.text_class, model, model.config.text_config)
    vision = _tower(towers.vision_class, model, model.config.vision_config)
    tokens = {"input_ids": {0: "batch_size", 1: "sequence_length"}}
    if model.config.model_type == "clip":  # SigLIP pads to full length and has no mask
        tokens["attention_mask"] = {0: "batch_size", 1: "sequence_length"}
    pixels = {"pixel_values": {0: "batch_size"}}
    text_base, vision_base = (
        configs.CLIPTextWithProjectionOnnxConfig,
        configs.CLIPVisionModelOnnxConfig,
    )
    return {
        "text": (text, _config(text_base, tokens, towers.text_output, text.config)),
        "vision": (vision, _config(vision_base, pixels, towers.vision_output, vision.config)),
    }


def _tower(class_name: str, model: Any, config: Any) -> Any:
    import torch
    import transformers

    with torch.device("meta"):  # no weights are made: they come from the model
        tower = getattr(transformers, class_name)(config)
    for name in _TOWER_MODULES:
        if hasattr(tower, name) and hasattr(model, name):
            setattr(tower, name, getattr(model, name))
    return tower.eval()


def _config(base: Any, inputs: Mapping[str, Any], output: str, config: Any) -> Any:
    """An ONNX configuration like `base` with these inputs and one output."""
    names = dict(inputs), {output: {0: "batch_size"}}
    made = type(
        f"Tower{base.__name__}",
        (base,),
        {
            "inputs": property(lambda _self: names[0]),
            "outputs": property(lambda _self: names[1]),
        },
    )
    return made(config, task="feature-extraction")
