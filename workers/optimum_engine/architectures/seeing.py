"""Inputs of vision-language models besides pixels and text: shapes, grids, image positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from workers.optimum_engine.architectures import inputs

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
_GRID = 4


def shape(config: Any) -> tuple[int, ...]:
    """The shape of the pixels of one image."""
    if config.model_type in _OF_PATCHES:
        vision = config.vision_config
        channels = inputs.told(config, "num_channels") or 3
        return _GRID * _GRID, channels * vision.temporal_patch_size * vision.patch_size**2
    image = tuple(
        inputs.told(config, axis) or inputs.SIZES[axis]
        for axis in ("num_channels", "height", "width")
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
