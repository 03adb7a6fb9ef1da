"""CLIP-like models: a component for texts and one for images, whose outputs are joined to logits.

Optimum exports most of them as one graph, so a consumer cannot embed one side without the other,
and the text side keeps the image side from running on an NPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.composition import Join

_TASKS = ("feature-extraction", "zero-shot-image-classification")
_MODULES = ("text_model", "text_projection", "vision_model", "visual_projection")


@dataclass(frozen=True, slots=True)
class _Towers:
    text_class: str
    vision_class: str
    text_output: str
    vision_output: str
    masked: bool
    """Whether texts have a mask; those of SigLIP are padded to full length and have none."""


_EMBEDS = ("text_embeds", "image_embeds")
_POOLED = ("pooler_output", "pooler_output")
_TOWERS = {
    "clip": _Towers(
        "CLIPTextModelWithProjection", "CLIPVisionModelWithProjection", *_EMBEDS, masked=True
    ),
    "siglip": _Towers("SiglipTextModel", "SiglipVisionModel", *_POOLED, masked=False),
}


def register() -> None:
    """Optimum has MetaCLIP 2 both ways."""
    from optimum.exporters.onnx.model_configs import MetaCLIP2OnnxConfig

    MetaCLIP2OnnxConfig.DEFAULT_VARIANT = "split"


def parts(model: Any, task: str) -> Mapping[str, tuple[Any, Any]] | None:
    """The two towers; they share their weights with the model."""
    from optimum.exporters.onnx import model_configs as configs

    towers = _TOWERS.get(model.config.model_type)
    if towers is None or task not in _TASKS:
        return None
    text = _tower(towers.text_class, model, model.config.text_config)
    vision = _tower(towers.vision_class, model, model.config.vision_config)
    tokens = {"input_ids": {0: "batch_size", 1: "sequence_length"}}
    if towers.masked:
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


def joins(model: Any, task: str) -> list[Join]:
    """How the outputs of two towers become logits; the scale is already exponentiated."""
    towers = _TOWERS.get(model.config.model_type)
    if towers is None or task not in _TASKS:
        return []
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


def _tower(class_name: str, model: Any, config: Any) -> Any:
    import torch
    import transformers

    with torch.device("meta"):  # no weights are made: they come from the model
        tower = getattr(transformers, class_name)(config)
    for name in _MODULES:
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
