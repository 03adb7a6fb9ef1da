"""Two-tower models (CLIP-like) as two graphs: text to embedding, image to embedding.

Optimum exports them as one graph, in which a consumer cannot embed one side without the other,
and in which a text tower keeps the image tower from an NPU. What joins them is a scale and, for
some, a bias: `towers.json` has both, so that logits = scale * cosine(text, image) + bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASKS = ("feature-extraction", "zero-shot-image-classification")
FILE = "towers.json"

_TOWERS = {
    # model type: text class, vision class, text output, image output
    "clip": ("CLIPTextModelWithProjection", "CLIPVisionModelWithProjection",
             "text_embeds", "image_embeds"),
    "siglip": ("SiglipTextModel", "SiglipVisionModel", "pooler_output", "pooler_output"),
}  # fmt: skip
_MODULES = ("text_model", "text_projection", "vision_model", "visual_projection")


def splits(config: Any, task: str) -> bool:
    """Whether a model is exported as two towers."""
    return config.model_type in _TOWERS and task in TASKS


def parts(model: Any) -> Mapping[str, tuple[Any, Any]]:
    """The two towers, which share their weights with the model, and their configurations."""
    from optimum.exporters.onnx import model_configs as configs

    text_class, vision_class, text_output, image_output = _TOWERS[model.config.model_type]
    text = _tower(text_class, model, model.config.text_config)
    vision = _tower(vision_class, model, model.config.vision_config)
    tokens = {"input_ids": {0: "batch_size", 1: "sequence_length"}}
    if model.config.model_type == "clip":  # SigLIP pads to full length and has no mask
        tokens["attention_mask"] = {0: "batch_size", 1: "sequence_length"}
    return {
        "text": (
            text,
            _config(configs.CLIPTextWithProjectionOnnxConfig, tokens, text_output, text.config),
        ),
        "vision": (
            vision,
            _config(
                configs.CLIPVisionModelOnnxConfig,
                {"pixel_values": {0: "batch_size"}},
                image_output,
                vision.config,
            ),
        ),
    }


def joint(model: Any) -> dict[str, float]:
    """What joins the towers: the factor (already exponentiated) and the bias."""
    scale = getattr(model, "logit_scale", None)
    bias = getattr(model, "logit_bias", None)
    return {
        "logit_scale": float(scale.detach().exp()) if scale is not None else 1.0,
        "logit_bias": float(bias.detach()) if bias is not None else 0.0,
    }


def _tower(class_name: str, model: Any, config: Any) -> Any:
    import torch
    import transformers

    with torch.device("meta"):  # the weights come from the model, none are made
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
