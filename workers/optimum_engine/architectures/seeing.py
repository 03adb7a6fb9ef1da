"""Inputs of vision-language models besides pixels and text: shapes, grids, image positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from optimum.exporters.onnx.model_patcher import PatchingSpec

from workers.optimum_engine.architectures import inputs
from workers.optimum_engine.architectures.rows import rows

_TOKENS = ("image_token_id", "image_token_index")
_OF_PATCHES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe")
"""Their pixels are a list of patches, and a grid says how they lie."""
_OF_SEVERAL = ("idefics2", "idefics3", "smolvlm")
"""They take several images with each text; here one."""
_TILED = ("llava_next", "llava_next_video", "llava_onevision")
"""An image is seen whole and in tiles; here of one size, so in one tile."""
_SIZED = ("mistral3",)
"""These models also take the size of the image."""
_MARKED = ("gemma3", "shieldgemma2")
"""They take the kind of each token: those of an image see each other."""
_BESIDES = ("blip-2",)
"""Their image side tells how it came to the features besides, which the text does not use."""
_GRID = 4


def shape(config: Any) -> tuple[int, ...]:
    """The shape of the pixels of one image."""
    if config.model_type in _OF_PATCHES:
        vision = config.vision_config
        channels = inputs.told(config, "num_channels") or 3
        return _GRID * _GRID, channels * vision.temporal_patch_size * vision.patch_size**2
    row = rows().get(config.model_type)
    sizes = {**inputs.SIZES, **(row.sizes if row else {})}
    image = tuple(
        inputs.told(config, axis) or sizes[axis] for axis in ("num_channels", "height", "width")
    )
    if config.model_type in _OF_SEVERAL:
        return 1, 1, *image
    if config.model_type in _TILED:
        return 1, 2, *image
    return 1, *image


def arguments(config: Any, text: Any = None) -> dict[str, Any]:
    """The other arguments of the model."""
    found: dict[str, Any] = {}
    if text is None:
        text = found["input_ids"] = torch.full((1, 2), image_token(config))
    if config.model_type in _OF_PATCHES:
        found["image_grid_thw"] = torch.tensor([[1, _GRID, _GRID]])
    if config.model_type in (*_TILED, *_SIZED):
        size = inputs.told(config, "height") or inputs.SIZES["height"]
        found["image_sizes"] = torch.tensor([[size, size]])
    if config.model_type in _MARKED:
        found["token_type_ids"] = (text == image_token(config)).to(torch.int64)
    return found


def used(config: Any) -> int | None:
    """How many tensors of the image side's answer the text uses; None: all."""
    return 1 if config.model_type in _BESIDES else None


def writes_apart(config: Any) -> bool:
    """Whether an encoder reads image and text, and a decoder writes."""
    return bool(getattr(config.get_text_config(), "is_encoder_decoder", False))


def positions(config: Any) -> int:
    """How many kinds of positions the text takes as an input: those models count them in Python."""
    return 3 if config.model_type in _OF_PATCHES else 0


def places(config: Any, features: int) -> int:
    """How many tokens of a text an image takes."""
    deeper = getattr(config.vision_config, "deepstack_visual_indexes", None)
    return features // (1 + len(deeper)) if deeper else features


def text(config: Any, count: int, length: int) -> Any:
    """A random text that begins with the image."""
    found = inputs.value("input_ids", (1, length), config)
    token = image_token(config)
    found[found == token] = token - 1 if token else 1
    found[:, 1 : count + 1] = token
    return found


def image_token(config: Any) -> int:
    """The token whose places in a text are those of the image."""
    return int(next(getattr(config, name) for name in _TOKENS if hasattr(config, name)))


def replacer(pixels: tuple[int, ...], by: Any) -> Callable[[Any], Any]:
    """Puts a tensor in the place of the pixels among arguments."""

    def pick(value: Any) -> Any:
        is_pixels = isinstance(value, torch.Tensor) and tuple(value.shape) == pixels
        return by if is_pixels and value.is_floating_point() else value

    return pick


def method(owner: Any) -> Callable[..., Any] | None:
    """The image side of a model that picks the images which are not empty: here the one is."""
    if owner.config.model_type not in _OF_SEVERAL:
        return None
    grid = owner.vision_model.embeddings.num_patches_per_side
    mask = torch.ones((1, grid, grid), dtype=torch.bool)

    def look(pixel_values: Any, *_mask: Any, **_more: Any) -> Any:
        pixels = pixel_values.flatten(0, 1)
        found = owner.vision_model(pixel_values=pixels, patch_attention_mask=mask)
        return owner.connector(found.last_hidden_state)

    return look


def specs(model: Any) -> list[PatchingSpec]:
    """What has to be said otherwise of a model, beside the operators that all need."""
    found = []
    for module in model.modules():
        if hasattr(module, _DEEPSTACK):
            found.append(PatchingSpec(module, _DEEPSTACK, _add_where))
        if hasattr(module, _MERGER):
            found.append(PatchingSpec(module, _MERGER, _merger(model.config)))
        if type(module).__name__ in _ANY_SIZE:
            found.append(PatchingSpec(module, "forward", _of_own_size(module)))
    return found


_DEEPSTACK = "_deepstack_process"
_MERGER = "inputs_merger"
_ANY_SIZE = ("Idefics3VisionEmbeddings", "SmolVLMVisionEmbeddings")


def _merger(config: Any) -> Callable[..., Any]:
    """Puts features in the places of the image, without indices from values."""

    def merge(input_ids: Any, inputs_embeds: Any, image_hidden_states: Any) -> Any:
        mask = (input_ids == image_token(config))[..., None]
        return inputs_embeds.masked_scatter(mask, image_hidden_states)

    return merge


def _of_own_size(embeddings: Any) -> Callable[..., Any]:
    """Patches of an image of the model's own size: where they lie is known before."""
    side = embeddings.num_patches_per_side

    def forward(pixel_values: Any, patch_attention_mask: Any) -> Any:
        del patch_attention_mask  # it hides nothing
        patches = embeddings.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
        return patches + embeddings.position_embedding(places)

    # As the model counts: just below a boundary is still the patch before it.
    fractions = torch.arange(side, dtype=torch.float32) / side * (1 - 1e-6)
    lines = torch.bucketize(fractions, torch.arange(1 / side, 1.0, 1 / side), right=True)
    places = (lines[:, None] * side + lines).flatten()
    return forward


def _add_where(hidden: Any, mask: Any, features: Any) -> Any:
    """Features of an image added to the places of the image, without indices from values."""
    return hidden + torch.zeros_like(hidden).masked_scatter(mask[..., None], features)
